"""Bring-up of a full mesh, shaped at both ends of each cable, against the same plan through ip and tc in batch mode.

    python -m bench.bringup [NODES]

Boots a guest on the real clock and makes the plan there in both ways, ROUNDS times in turns. Prints both medians and
their ratio; exits with 1 where that is over LIMIT. A batch file cannot change namespaces: there is one for ip and one
for tc for each node. What sysctl takes beside them is not counted. Both ways set the same; ours also writes sysctls
and its journal, and reads all back.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from emulator.fabric import requests
from emulator.fabric.apply import apply
from emulator.fabric.inspect import inspect
from emulator.fabric.journal import Journal
from emulator.fabric.teardown import teardown
from emulator.guest.build import find_kernel
from emulator.guest.launch import import_paths
from emulator.plan.model import Cable, End, Node, Plan
from tests.guest.conftest import Bare
from tests.plans import mesh

NODES = 32
ROUNDS = 3
LIMIT = 1.5
"""At most this many times what ip and tc take."""


class Times(msgspec.Struct):
    """Seconds that each bring-up took."""

    emu: list[float] = []
    batch: list[float] = []


def main() -> int:
    """On the host: boot, have it measured inside, print."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else NODES
    kernel = find_kernel()
    if kernel is None:
        print("error: there is no guest kernel; run: emu kernel build", file=sys.stderr)
        return 1
    script = f"sys.path[:0] = {import_paths()}\nfrom bench.bringup import inside\nsay(inside({nodes}))"
    with tempfile.TemporaryDirectory() as directory:
        guest = Bare(kernel, Path(directory))
        try:
            (said,) = guest.run(script, clock="real", timeout=300)
        finally:
            guest.end()
    times = msgspec.json.decode(said, type=Times)
    emu, batch = statistics.median(times.emu), statistics.median(times.batch)
    ratio = emu / batch
    print(f"full mesh of {nodes} nodes, {nodes * (nodes - 1) // 2} cables, guest on the real clock, median of {ROUNDS}")
    print(f"  ip -batch and tc -batch  {batch:6.2f} s")
    print(f"  emu                      {emu:6.2f} s")
    print(f"  ratio                    {ratio:6.2f} (at most {LIMIT})")
    return 0 if ratio <= LIMIT else 1


def inside(nodes: int) -> str:
    """In the guest, as root: the `Times` as JSON."""
    plan = mesh(nodes, cluster="bench")
    times = Times()
    journal_path = Path("/run/bench-journal")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        with Journal(journal_path) as journal:
            apply(plan, journal)
        times.emu.append(time.perf_counter() - start)
        ours = inspect(plan)
        teardown(journal_path)
        time.sleep(1)  # The kernel takes namespaces apart after the call that ends them.
        took = 0.0
        for command in write_batches(plan, Path("/run")):
            start = time.perf_counter()
            subprocess.run(command, check=True)
            took += time.perf_counter() - start if "-batch" in command else 0
        times.batch.append(took)
        theirs = inspect(plan)
        assert [cable.name for cable in ours] == [cable.name for cable in theirs]
        subprocess.run(["ip", "-all", "netns", "delete"], check=True)
        time.sleep(1)
    return msgspec.json.encode(times).decode()


def write_batches(plan: Plan, directory: Path) -> list[list[str]]:
    """The plan as files for ip and tc, and the commands that carry them out."""
    files: dict[str, list[str]] = {"all": [f"netns add {node.namespace}" for node in plan.nodes]}
    commands = [["ip", "-batch", str(directory / "all")]]
    for node in plan.nodes:
        ends = [(cable, end) for cable in plan.cables for end in (cable.a, cable.b) if end.node == node.name]
        files[f"sysctl-{node.name}"] = [f"{name}={value}" for name, value in node.sysctls.items()]
        files[f"links-{node.name}"] = [_veth(plan, cable) for cable, end in ends if end is cable.a]
        files[f"tc-{node.name}"] = [_netem(end) for _, end in ends]
        files[f"ip-{node.name}"] = [*_node(node), *(line for _, end in ends for line in _end(end)), *_ways(node)]
    for kind in ("sysctl", "links", "tc", "ip"):
        for node in plan.nodes:
            path = str(directory / f"{kind}-{node.name}")
            commands.append(
                ["ip", "netns", "exec", node.namespace, "sysctl", "-q", "-p", path]
                if kind == "sysctl"
                else ["tc" if kind == "tc" else "ip", "-n", node.namespace, "-batch", path]
            )
    for name, lines in files.items():
        (directory / name).write_text("".join(f"{line}\n" for line in lines))
    return commands


def _veth(plan: Plan, cable: Cable) -> str:
    ends = (
        f"{end.interface} address {end.mac} mtu {cable.mtu} gso_max_segs {requests.GSO_MAX_SEGMENTS}"
        for end in (cable.a, cable.b)
    )
    return "link add {} numtxqueues 1 numrxqueues 1 type veth peer name {} netns {}".format(
        *ends, plan.node(cable.b.node).namespace
    )


def _netem(end: End) -> str:
    shaping = end.egress
    return (
        f"qdisc add dev {end.interface} root handle 1: netem delay {shaping.delay_ns / 1000}us "
        f"rate {shaping.rate_bps}bit limit {shaping.limit_packets}"
    )


def _node(node: Node) -> list[str]:
    return ["link set lo up", f"address add {node.address}/32 dev lo"]


def _end(end: End) -> list[str]:
    return [f"link set {end.interface} up", f"address add {end.address} dev {end.interface}"]


def _ways(node: Node) -> list[str]:
    neighbours = [
        f"neighbour add {entry.address} lladdr {entry.mac} dev {entry.interface} nud permanent"
        for entry in node.neighbours
    ]
    return neighbours + [
        f"route add {route.destination}/32 via {route.gateway} dev {route.interface} src {node.address}"
        for route in node.routes
    ]


if __name__ == "__main__":
    sys.exit(main())
