"""From stamps to a result: the definitions of token time, communication time and exchange delay."""

import os
import subprocess
import sys
import time
from array import array
from pathlib import Path
from typing import Literal

import jsonschema
import msgspec
import pytest

from emulator.errors import WorkloadError
from emulator.fabric.inspect import CableState, DirectionState, Traffic
from emulator.fabric.netem import HeldShaping
from emulator.plan.model import End, Plan
from emulator.spec.schema import schema
from emulator.study.prepare import read_plan, read_program
from emulator.workload.fidelity import HostWatch, judge
from emulator.workload.program import Program
from emulator.workload.recording import LinkRecord, NodeRecord, Recording
from emulator.workload.result import Result, decode, encode
from emulator.workload.summarise import summarise

START = 1_000_000


def packed(*values: int) -> bytes:
    return array("q", values).tobytes()


def program_of_two(tokens: int, *settings: str) -> tuple[Plan, Program]:
    plan = read_plan("mesh4-tb5-rdma")
    settings = ("nodes=[n0, n1]", "payload=64B", *settings)
    return plan, read_program(plan, "token-exchange", tokens=tokens, settings=settings)


def two_way_recording(waited_ns: int = 0) -> Recording:
    """Two nodes that both end each of three tokens, after 100, 200 and 300; node 1 is 10 later than node 0."""
    ends = [(START + 100, START + 300, START + 600), (START + 110, START + 310, START + 610)]
    nodes = []
    for node in range(2):
        other = 1 - node
        link = LinkRecord(
            connection=0,
            sent_ns=packed(START + node, START + 200 + node),
            sizes=packed(64, 128) if node else b"",
            received_ns=packed(START + 40 + other, START + 250 + other),
            retransmissions=node,
        )
        nodes.append(NodeRecord(ends_ns=packed(*ends[node]), links=(link,), waited_ns=waited_ns))
    return Recording(start_ns=START, ended_ns=START + 1000, nodes=tuple(nodes))


def states(plan: Plan, packets: int) -> tuple[CableState, ...]:
    def direction(sender: End, receiver: End) -> DirectionState:
        held = HeldShaping(
            delay_ns=sender.egress.delay_ns,
            jitter_ns=0,
            rate_bps=sender.egress.rate_bps,
            limit_packets=1000,
            seed=1,
            correlation=0.0,
            loss=0.0,
            loss_correlation=0.0,
            duplicate=0.0,
            reorder=0.0,
        )
        traffic = Traffic(bytes=100 * packets, packets=packets, queued_packets=0, drops=packets // 4, receive_drops=0)
        return DirectionState(sender=sender.node, receiver=receiver.node, held=held, traffic=traffic)

    return tuple(
        CableState(name=cable.name, a_to_b=direction(cable.a, cable.b), b_to_a=direction(cable.b, cable.a))
        for cable in plan.cables
    )


def result(
    plan: Plan,
    program: Program,
    recording: Recording,
    clock: Literal["virtual", "real"] = "virtual",
    overload: tuple[str, ...] = (),
) -> Result:
    return summarise(
        plan,
        program,
        recording,
        before=states(plan, 4),
        after=states(plan, 12),
        kernel="guest",
        clock=clock,
        packet_order="kept",
        wall_seconds=0.5,
        seed=1,
        warnings=("note",),
        overload=overload,
    )


def test_times_are_what_their_definitions_say() -> None:
    plan, program = program_of_two(3)
    program = msgspec.structs.replace(program, compute_ns=(20, 20))
    found = result(plan, program, two_way_recording())
    # A token starts when the first node ended the one before, and ends when the last node ends it.
    token = found.token_time_ns
    assert (token.min, token.p50, token.p99, token.max) == (110, 210, 310, 310)
    assert token.mean == 210
    assert found.compute_time_ns == 4 * 20, "three exchanges: four nodes compute"
    assert found.communication_time_ns.p50 == 210 - 80
    assert found.tokens_per_second == pytest.approx(3e9 / 610)
    # Sent at 0, 1, 200, 201; whole at 40, 41, 250, 251.
    exchange = found.exchange_delay_ns
    assert (exchange.min, exchange.max, exchange.mean, found.exchanges) == (40, 50, 45, 4)
    assert found.exchange_requested_ns.min == 40_013
    assert found.exchange_requested_ns.max == 40_000 + round((128 + 66) * 8 / 80)
    assert found.retransmissions == 1
    direction = found.cables[0].a_to_b
    assert (direction.traffic.packets, direction.traffic.bytes, direction.traffic.drops) == (8, 800, 2)
    assert direction.requested.delay_ns == direction.held.delay_ns == 40_000
    assert direction.utilisation == pytest.approx(800 * 8 / 80 / 610)


def test_the_published_schema_describes_the_document() -> None:
    plan, program = program_of_two(3)
    found = result(plan, program, two_way_recording())
    document = encode(found)
    assert decode(document) == found
    jsonschema.validate(msgspec.json.decode(document), schema("result"))
    times = {"token_time_ns", "communication_time_ns", "exchange_delay_ns", "compute_time_ns", "wall_seconds"}
    about = {"schema_version", "emu_version", "topology", "workload", "kernel", "clock", "tokens", "tokens_per_second"}
    assert times | about | {"cables", "fidelity"} <= set(msgspec.json.decode(document))


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b"\xff"])
def test_what_is_no_result_is_refused(text: bytes) -> None:
    with pytest.raises(WorkloadError, match="no result of emu"):
        decode(text)


def test_a_result_of_another_schema_is_refused() -> None:
    plan, program = program_of_two(3)
    other = msgspec.structs.replace(result(plan, program, two_way_recording()), schema_version=99)
    with pytest.raises(WorkloadError, match="schema version 99"):
        decode(encode(other))


def test_a_recording_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    plan, program = program_of_two(4)
    with pytest.raises(WorkloadError, match="not all of 4 tokens"):
        result(plan, program, two_way_recording())
    path = tmp_path / "recording"
    two_way_recording().save(path)
    assert Recording.load(path) == two_way_recording()
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(WorkloadError, match="no whole recording"):
        Recording.load(path)
    with pytest.raises(WorkloadError, match="cannot write the recording"):
        two_way_recording().save(tmp_path / "missing" / "recording")


def test_starved_processes_make_a_run_not_ok_on_the_real_clock_only() -> None:
    plan, program = program_of_two(3)
    starved = two_way_recording(waited_ns=100)
    assert result(plan, program, starved, "virtual").fidelity.ok
    found = result(plan, program, starved, "real").fidelity
    assert not found.ok
    assert "node n0 was ready and waited for a processor during 10% of the run" in found.warnings[0]
    assert result(plan, program, two_way_recording(waited_ns=49), "real").fidelity.ok


def test_overload_and_slow_exchanges_are_said() -> None:
    _, program = program_of_two(3)
    found = judge(program, two_way_recording(), "real", 1.0, (), ("busy",))
    assert (found.ok, found.warnings) == (False, ("busy",))
    found = judge(program, two_way_recording(), "real", 1.3, (), ())
    assert found.ok
    assert "1.30 times what was requested" in found.warnings[0]


BUSY = "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass"


def test_a_busy_host_is_noticed_unless_it_is_the_run_that_is_busy() -> None:
    count = os.cpu_count() or 1
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        with HostWatch() as watch:
            time.sleep(1)
        with HostWatch(*(process.pid for process in busy)) as own:
            time.sleep(1)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    others = [share(reason) for reason in watch.overload if "other programs" in reason]
    assert others, watch.overload
    assert max([share(reason) for reason in own.overload if "other programs" in reason], default=25) < others[0]


def share(reason: str) -> int:
    """The percentage that a reason names."""
    return int(reason.split("%")[0].split()[-1])
