"""A small cluster that stands in a guest for the tests of one module, and emu's client in processes of its own."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from emulator.guest.build import find_kernel
from emulator.guest.client import Client
from emulator.guest.launch import launch
from emulator.plan.model import Cable, End, Neighbour, Node, Plan, Route, Shaping
from emulator.state import Clock

DELAY_NS = 40_000
EXEC = """
import sys
from pathlib import Path
from emulator.errors import EmuError
from emulator.guest.client import connect
try:
    sys.exit(connect(Path(sys.argv[1])).exec(sys.argv[2], sys.argv[4:], limit=float(sys.argv[3])))
except EmuError as error:
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    sys.exit(200 + error.exit_code)
"""
"""What `emu exec` does. An error of emu's has a status over 200, apart from those of commands."""


def pair() -> Plan:
    """Two nodes and a cable."""
    shaping = Shaping(delay_ns=DELAY_NS, rate_bps=80_000_000_000, limit_packets=10_000, seed=1)

    def node(here: int, there: int) -> Node:
        gateway = f"10.1.0.{there}"
        route = Route(
            destination=f"10.0.0.{there}/32",
            node=f"n{there}",
            interface="c0",
            gateway=gateway,
            hops=1,
            delay_ns=DELAY_NS,
        )
        neighbour = Neighbour(interface="c0", address=gateway, mac=f"02:00:00:00:00:0{there}")
        return Node(
            name=f"n{here}",
            kind="node",
            namespace=f"pair-n{here}",
            address=f"10.0.0.{here}",
            routes=(route,),
            neighbours=(neighbour,),
            sysctls={"net.ipv6.conf.all.disable_ipv6": "1", "net.ipv6.conf.default.disable_ipv6": "1"},
        )

    def end(here: int) -> End:
        return End(
            node=f"n{here}", interface="c0", mac=f"02:00:00:00:00:0{here}", address=f"10.1.0.{here}/31", egress=shaping
        )

    cable = Cable(
        name="A:n2-n3",
        plane="A",
        profile="test",
        interconnect="test",
        mtu=9000,
        host_cost_ns=0,
        a=end(2),
        b=end(3),
    )
    return Plan(
        cluster="pair",
        topology="pair",
        description="",
        nodes=(node(2, 3), node(3, 2)),
        cables=(cable,),
        hosts={"n2": "10.0.0.2", "n3": "10.0.0.3"},
    )


@contextmanager
def guest(directory: Path, clock: Clock = "virtual", pace: bool = False, plan: Plan | None = None) -> Iterator[Client]:
    """A guest, with a plan made true in it, that has gone at the end."""
    kernel = find_kernel()
    if kernel is None:
        pytest.fail("no guest kernel is built; run: emu kernel build")
    directory.mkdir(mode=0o700, parents=True)
    client = launch(directory, kernel=kernel, clock=clock, memory="512M", pace=pace)
    supervisor = client.supervisor
    try:
        client.apply(plan or pair())
        yield client
    finally:
        if supervisor is not None and client.supervisor is not None:
            os.kill(supervisor, 9)
            os.waitpid(supervisor, 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Client]:
    """A cluster for the tests of a module, on the virtual clock; its directory has a space in its name."""
    base = Path(tempfile.mkdtemp(prefix="emu-test-"))
    try:
        with guest(base / "a cluster") as client:
            yield client
    finally:
        shutil.rmtree(base)


def command(client: Client, *argv: str, node: str = "n2", limit: float = 30.0) -> list[str]:
    """The command line that runs a command in a node."""
    return [sys.executable, "-c", EXEC, str(client.directory), node, str(limit), *argv]


def run(client: Client, *argv: str, stdin: bytes = b"", **options: object) -> "subprocess.CompletedProcess[bytes]":
    """Run a command in a node and keep what it writes."""
    return subprocess.run(command(client, *argv), input=stdin, capture_output=True, timeout=60, **options)  # type: ignore[call-overload,no-any-return]


@contextmanager
def started(client: Client, *argv: str, limit: float = 30.0, **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A command that runs in a node meanwhile. Where the test fails, nobody waits for it."""
    with subprocess.Popen(command(client, *argv, limit=limit), **options) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def until(what: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come to that in time"
        time.sleep(0.02)
