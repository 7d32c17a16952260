"""Commands about the guest kernel: `kernel build`, `kernel info`."""

import time
from pathlib import Path

import click

from emulator.cli import options, output
from emulator.errors import GuestError


@click.group(epilog="Example: emu kernel build")
def kernel() -> None:
    """Build the guest kernel, and say what it is."""


@kernel.command("build", epilog="Example: emu kernel build --source linux-6.12.tar.xz")
@click.option(
    "--source",
    type=click.Path(exists=True, path_type=Path),
    help="A kernel's source, as a directory or a tarball. [default: Debian's package linux-source-6.12]",
)
def kernel_build(source: Path | None) -> None:
    """Build the guest kernel into the cache, unless it is there."""
    from emulator.guest.build import build, find_kernel

    if source is None and (found := find_kernel()):
        click.echo(f"the guest kernel is built: {found}")
        return
    output.note("building the guest kernel, which takes about 5 minutes on two idle processors")
    with output.progress() as progress:
        click.echo(f"the guest kernel is built: {build(source, progress)}")


@kernel.command("info", epilog="Example: emu kernel info --json")
@options.as_json
def kernel_info(as_json: bool) -> None:
    """Say which guest kernel is there, and what it was built from."""
    import msgspec

    from emulator.guest.build import info

    found = info()
    if found is None:
        raise GuestError("the guest kernel is not built; run: emu kernel build")
    if as_json:
        output.print_json(found)
        return
    for key, value in msgspec.structs.asdict(found).items():
        if key == "built":
            value = time.strftime("%Y-%m-%d %H:%M", time.localtime(value))
        shown = (
            f"{len(value)} set" if isinstance(value, list) else f"{value:.0f}" if isinstance(value, float) else value
        )
        click.echo(f"{key:>8}  {shown}")
