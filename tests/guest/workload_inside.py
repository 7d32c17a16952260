"""What `test_workload.py` has done inside a guest: one function for each check.

Workloads are written as files are, and run over the shipped topologies and over one cable with each shipped profile.
"""

import contextlib
import os
import signal
import time
from array import array
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec

from emulator.errors import WorkloadError
from emulator.fabric.apply import apply
from emulator.fabric.inspect import inspect
from emulator.fabric.journal import Journal
from emulator.fabric.namespace import namespace_path
from emulator.fabric.teardown import teardown
from emulator.plan.build import build
from emulator.plan.model import End, Plan
from emulator.spec.links import links, load_profiles
from emulator.spec.load import parse
from emulator.spec.shipped import shipped
from emulator.spec.topology import Topology
from emulator.study.prepare import read_plan, read_program
from emulator.workload.program import Program
from emulator.workload.recording import Recording
from emulator.workload.run import run

JOURNAL = Path("/run/test-journal")
RECORDING = Path("/run/test-recording")


@contextlib.contextmanager
def standing(plan: Plan) -> Iterator[Plan]:
    with Journal(JOURNAL) as journal:
        apply(plan, journal)
    try:
        yield plan
    finally:
        left = processes(plan)
        teardown(JOURNAL)
        assert not left, "the run left processes"


def processes(plan: Plan) -> dict[int, str]:
    """Those whose network is a node's, by process id."""
    nodes = {namespace_path(node.namespace).stat().st_ino: node.name for node in plan.nodes}
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            inode = (entry / "ns/net").stat().st_ino
            if inode in nodes:
                found[int(entry.name)] = nodes[inode]
    return found


def cable(profile: str) -> Plan:
    """Two nodes and one cable, without jitter."""
    text = (
        "name: cable\ndescription: two nodes\nnodes:\n  - {count: 2, prefix: n}\n"
        f"planes:\n  a: {{shape: line, profile: {profile}}}\n"
    )
    topology = parse(text, Path("cable.yaml"), Topology)
    return build(topology, links(topology, load_profiles(topology)), cluster="cable").ideal


def exchanges(program: Program, recording: Recording) -> list[tuple[int, int]]:
    """Measured and requested delay of each message, in ns."""
    found = []
    ends = {(index, link.connection): link for index, node in enumerate(recording.nodes) for link in node.links}
    for number, connection in enumerate(program.connections):
        for sender, receiver in ((connection.a, connection.b), (connection.b, connection.a)):
            sent, received = array("q", ends[sender, number].sent_ns), array("q", ends[receiver, number].received_ns)
            sizes = array("q", ends[sender, number].sizes) or [program.team.payload_bytes] * len(sent)
            way = connection.sent_by(sender)
            for start, end, size in zip(sent, received, sizes, strict=True):
                found.append((end - start, way.expected_ns(size)))
    return found


def drops(plan: Plan) -> int:
    ways = [way for state in inspect(plan) for way in (state.a_to_b, state.b_to_a)]
    return sum(way.traffic.drops + way.traffic.receive_drops for way in ways)


def percentile(values: list[int], share: float) -> int:
    return sorted(values)[int(len(values) * share)]


def small_messages() -> None:
    """64 bytes over one cable of each profile: within 20 ns and 0.02 % of delay and serialisation, p99 = p50."""
    for profile in shipped("profile"):
        with standing(cable(profile)) as plan:
            settings = ("payload=64B", "parameters.exchanges=1")
            program = read_program(plan, "token-exchange", tokens=300, settings=settings)
            measured = exchanges(program, run(plan, program, RECORDING))
            delays, requested = [delay for delay, _ in measured], measured[0][1]
            middle = percentile(delays, 0.5)
            assert abs(middle - requested) <= 20 + requested * 0.0002, (profile, middle, requested)
            assert percentile(delays, 0.99) == middle, (profile, sorted(set(delays)))


def bulk() -> None:
    """256 MiB over one cable: 98.5 % of the rate or more, and no drop."""
    for profile in ("roce-10g-measured", "thunderbolt5-tcp", "thunderbolt5", "pcie-switch", "specialised"):
        with standing(cable(profile)) as plan:
            program = read_program(plan, "bulk", settings=("payload=256MiB",))
            ((delay, _),) = exchanges(program, run(plan, program, RECORDING))
            rate = (256 << 20) * 8e9 / (delay - plan.cables[0].a.egress.delay_ns)
            assert rate >= 0.985 * plan.cables[0].a.egress.rate_bps, (profile, rate)
            assert drops(plan) == 0, profile


def tokens() -> None:
    """token-exchange without jitter: three exchanges within 0.05 %, every token alike."""
    for topology in ("mesh4-tb5-tcp", "mesh4-tb5-rdma"):
        with standing(read_plan(topology, ideal=True)) as plan:
            program = read_program(plan, "token-exchange", tokens=100)
            recording = run(plan, program, RECORDING)
            every = [array("q", node.ends_ns) for node in recording.nodes]
            ends = [recording.start_ns, *(max(token) for token in zip(*every, strict=True))]
            times = [later - earlier for earlier, later in pairwise(ends)]
            requested = 3 * program.connections[0].a_to_b.expected_ns(14336)
            assert abs(percentile(times, 0.5) - requested) <= 0.0005 * requested, (topology, times[50], requested)
            assert max(times) - min(times) <= 10, (topology, sorted(set(times)))


def repeat() -> None:
    """Two clusters made and measured alike, with jitter, give the same stamps."""
    found = []
    for _ in range(2):
        with standing(read_plan("mesh4-tb5-rdma")) as plan:
            assert plan.cables[0].a.egress.jitter_ns
            for workload in ("token-exchange", "all-reduce-mesh"):
                program = read_program(plan, workload, tokens=50)
                found.append([delay for delay, _ in exchanges(program, run(plan, program, RECORDING))])
    assert found[:2] == found[2:]
    assert len(set(found[0])) > 50


ALONE = {
    "aggregate", "all-reduce-mesh", "all-reduce-ring", "bulk", "pipeline", "token-exchange", "token-exchange-compute",
}  # fmt: skip
"""Workloads whose messages have their cables to themselves. Those of others wait for each other."""


def patterns() -> None:
    """On a topology they are for, no message is faster than its cable, and none slower if it is alone."""
    for workload in (*sorted(ALONE), "distributed-llama", "hierarchical", "star", "tensor-parallel"):
        topology = "dual-plane-8" if workload in ("aggregate", "hierarchical") else "mesh4-tb5-rdma"
        with standing(read_plan(topology, ideal=True)) as plan:
            settings = ("payload=8MiB",) if workload == "bulk" else ()
            program = read_program(plan, workload, tokens=2, settings=settings)
            for delay, requested in exchanges(program, run(plan, program, RECORDING)):
                assert delay >= 0.999 * requested, (workload, delay, requested)
                assert workload not in ALONE or delay <= 1.01 * requested, (workload, delay, requested)


def through_a_switch() -> None:
    with standing(read_plan("switch16", ideal=True)) as plan:
        program = read_program(plan, "token-exchange", tokens=20)
        for delay, requested in exchanges(program, run(plan, program, RECORDING)):
            assert abs(delay - requested) <= 20, (delay, requested)


def loss() -> None:
    """Lost packets are sent again by TCP: every message arrives, and retransmissions are counted."""
    plan = read_plan("mesh4-tb5-rdma", ideal=True)
    with standing(lossy(plan, 0.02)):
        program = read_program(plan, "token-exchange", tokens=100)
        recording = run(plan, program, RECORDING)
        assert len(exchanges(program, recording)) == 300
        assert sum(link.retransmissions for node in recording.nodes for link in node.links) > 0


def lossy(plan: Plan, share: float) -> Plan:
    replace = msgspec.structs.replace

    def end(old: End) -> End:
        return replace(old, egress=replace(old.egress, loss=share))

    return replace(plan, cables=tuple(replace(old, a=end(old.a), b=end(old.b)) for old in plan.cables))


def fails(during: Callable[[dict[int, str]], None] | None, plan: Plan) -> str:
    """The message of a long run that fails; `during` is called after 1 s with the nodes' processes."""
    program = read_program(plan, "token-exchange-compute", tokens=100_000)
    helper = 0
    if during and not (helper := os.fork()):
        time.sleep(1)
        during(processes(plan))
        os._exit(0)
    try:
        run(plan, program, RECORDING)
    except WorkloadError as error:
        return str(error)
    finally:
        if helper:
            os.waitpid(helper, 0)
    raise AssertionError("the run did not fail")


def pid_of(found: dict[int, str], node: str) -> int:
    return next(pid for pid, name in found.items() if name == node)


def a_killed_node() -> None:
    with standing(read_plan("mesh4-tb5-rdma")) as plan:
        message = fails(lambda found: os.kill(pid_of(found, "n2"), signal.SIGKILL), plan)
        assert message == "node n2: its process was ended by signal 9", message
        run(plan, read_program(plan, "token-exchange", tokens=5), RECORDING)


def a_stalled_node() -> None:
    with standing(read_plan("mesh4-tb5-rdma")) as plan:
        message = fails(lambda found: os.kill(pid_of(found, "n1"), signal.SIGSTOP), plan)
        assert message.startswith("nothing has moved for 30 s: "), message
        assert "n2 waits for n1" in message, message


def a_cut_cable() -> None:
    plan = read_plan("mesh4-tb5-rdma", ideal=True)
    with standing(lossy(plan, 1.0)):
        message = fails(None, plan)
        assert message.startswith("n0 cannot reach n1 at 10."), message


def a_missing_namespace() -> None:
    plan = read_plan("mesh4-tb5-rdma")
    with standing(plan):
        gone = tuple(msgspec.structs.replace(node, namespace="gone") for node in plan.nodes)
        message = fails(None, msgspec.structs.replace(plan, nodes=gone))
        assert message.startswith("the namespace of n0 is gone"), message


def a_killed_coordinator() -> None:
    """Its processes end with it."""
    with standing(read_plan("mesh4-tb5-rdma")) as plan:
        coordinator = os.fork()
        if not coordinator:
            run(plan, read_program(plan, "token-exchange-compute", tokens=100_000), RECORDING)
            os._exit(0)
        time.sleep(1)
        assert sorted(processes(plan).values()) == ["n0", "n1", "n2", "n3"]
        os.kill(coordinator, signal.SIGKILL)
        os.waitpid(coordinator, 0)
        time.sleep(0.1)
        assert processes(plan) == {}


def real_clock() -> None:
    """Whatever the host is busy with, every message comes, and no sooner than its delay."""
    with standing(read_plan("mesh4-tb5-tcp", ideal=True)) as plan:
        program = read_program(plan, "token-exchange", tokens=20)
        for delay, _ in exchanges(program, run(plan, program, RECORDING)):
            assert delay >= 300_000


VIRTUAL = (
    small_messages,
    bulk,
    tokens,
    repeat,
    patterns,
    through_a_switch,
    loss,
    a_killed_node,
    a_stalled_node,
    a_cut_cable,
    a_missing_namespace,
    a_killed_coordinator,
)
