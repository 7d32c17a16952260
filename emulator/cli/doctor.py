"""`emu doctor`: what this machine can do, and for each thing that is missing, what to do about it."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from typing import NamedTuple

import click

from emulator import __version__, state
from emulator.cli import options, output
from emulator.errors import EmuError

SPACE_BYTES = 3 << 30
"""What building the guest kernel takes of the cache's disk: its source unpacked, and the objects."""


class Finding(NamedTuple):
    """One line of the doctor."""

    what: str
    good: bool
    found: str
    todo: str = ""


@click.command(epilog="Example: emu doctor --json")
@options.as_json
def doctor(as_json: bool) -> int:
    """Check what emu needs; for each failing line, say what to do. Exits with 5 where no cluster can stand here."""
    findings = list(examine())
    places = {finding.what: finding.good for finding in findings}
    usable = places["host kernel"] or places["guest kernel"]
    if as_json:
        output.print_json({"usable": usable, "checks": [finding._asdict() for finding in findings]})
    else:
        for finding in findings:
            mark = click.style("ok", fg="green") if finding.good else click.style("--", fg="yellow")
            click.echo(f"{mark}  {finding.what:<13} {finding.found}" + (f"; {finding.todo}" if finding.todo else ""))
        click.echo("a cluster can stand here" if usable else "no cluster can stand here yet")
    return 0 if usable else 5


def examine() -> Iterator[Finding]:
    """Every check, in order."""
    from emulator.fabric.support import namespace_support, netem_support
    from emulator.place.choose import guest_cannot, host_cannot

    yield Finding("emu", True, f"{__version__}, {platform.system()} {platform.release()} on {platform.machine()}")
    new = sys.version_info >= (3, 11)
    yield Finding("python", new, platform.python_version(), "" if new else "install Python 3.11 or later")
    root = os.geteuid() == 0
    yield Finding(
        "root", root, "yes" if root else "no", "" if root else "sudo for the host's kernel; the guest needs no root"
    )
    namespaces = namespace_support()
    yield Finding(
        "namespaces",
        namespaces == "yes",
        namespaces,
        "" if namespaces == "yes" else "a kernel with CONFIG_NET_NS and CONFIG_VETH, and root; or --kernel guest",
    )
    netem = netem_support()
    advice = {
        "absent": "this kernel cannot shape: use --kernel guest, or a kernel with CONFIG_NET_SCH_NETEM",
        "unknown": "run as root to find out, or use --kernel guest",
    }
    yield Finding("netem", netem not in advice, netem, advice.get(netem, ""))
    tc = shutil.which("tc", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    yield Finding("tc", bool(tc), tc or "absent", "" if tc else "only to look by hand: apt-get install iproute2")
    reason = host_cannot()
    yield Finding("host kernel", not reason, reason or "can hold clusters, on the real clock")
    yield _guest_kernel(guest_cannot())
    yield _space()
    yield _state()


def _guest_kernel(reason: str | None) -> Finding:
    from emulator.guest.build import find_kernel

    if reason:
        return Finding("guest kernel", False, reason, "use --kernel host as root")
    if kernel := find_kernel():
        return Finding("guest kernel", True, str(kernel))
    return Finding("guest kernel", False, "not built", "run: emu kernel build")


def _space() -> Finding:
    from emulator.guest.build import cache_dir

    try:
        directory = cache_dir()
        existing = next(one for one in (directory, *directory.parents) if one.exists())
        free = shutil.disk_usage(existing).free
    except (EmuError, OSError) as error:
        return Finding("space", False, str(error), "set EMU_CACHE_DIR to a directory of your own")
    good = free > SPACE_BYTES
    todo = "" if good else f"free {SPACE_BYTES >> 30} GiB to build the guest kernel, or set EMU_CACHE_DIR"
    return Finding("space", good, f"{free / 2**30:.0f} GiB free for {directory}", todo)


def _state() -> Finding:
    try:
        return Finding("state", True, str(state.state_directory()))
    except EmuError as error:
        return Finding("state", False, str(error))
