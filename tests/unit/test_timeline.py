"""Timelines: who computed, sent and waited, and the critical path, from known stamps and from real runs."""

import json
from array import array
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from emulator.errors import UsageError
from emulator.report.timeline import draw_timeline, write_trace
from emulator.study.prepare import read_plan, read_program
from emulator.workload.program import Program
from emulator.workload.recording import LinkRecord, NodeRecord, Recording
from emulator.workload.timeline import Interval, timeline, typical_token
from tests.unit.test_workload_patterns import WAY, make_program, play

START = 1_000_000


def packed(*values: int) -> bytes:
    return array("q", values).tobytes()


def link(sent: tuple[int, ...], received: tuple[int, ...]) -> LinkRecord:
    return LinkRecord(
        connection=0,
        sent_ns=packed(*(START + time for time in sent)),
        sizes=b"",
        received_ns=packed(*(START + time for time in received)),
        retransmissions=0,
    )


def there_and_back() -> tuple[Program, Recording]:
    """Two tokens over two nodes. Node 0 computes 100, its message costs 10 and takes 50; node 1 computes 30 and ends
    the token; the next one goes the other way."""
    plan = read_plan("mesh4-tb5-rdma")
    program = read_program(plan, "bulk", tokens=2, settings=("nodes=[n0, n1]", "payload=64B"))
    (connection,) = program.connections
    way = msgspec.structs.replace(connection.a_to_b, cost_ns=10)
    program = msgspec.structs.replace(program, connections=(msgspec.structs.replace(connection, a_to_b=way),))
    nodes = (
        NodeRecord(
            ends_ns=packed(0, START + 300),
            links=(link((100,), (300,)),),
            computed_ns=packed(START, START + 100),
        ),
        NodeRecord(
            ends_ns=packed(START + 190, 0),
            links=(link((240,), (160,)),),
            computed_ns=packed(START + 160, START + 190, START + 190, START + 240),
        ),
    )
    return program, Recording(start_ns=START, ended_ns=START + 400, nodes=nodes)


def test_intervals_and_path_of_known_stamps() -> None:
    found = timeline(*there_and_back())
    first, second = found.tokens
    assert [one._replace(start_ns=one.start_ns - START, end_ns=one.end_ns - START) for one in first.path] == [
        Interval(0, "compute", 0, 100),
        Interval(0, "send", 100, 110, 1),
        Interval(0, "wire", 110, 160, 1),
        Interval(1, "compute", 160, 190),
    ]
    assert [(one.node, one.what, one.end_ns - one.start_ns) for one in second.path] == [
        (1, "compute", 50),
        (1, "wire", 60),
    ]
    assert [(one.node, one.what, one.start_ns - START, one.end_ns - START) for one in found.intervals] == [
        (0, "compute", 0, 100),
        (0, "send", 100, 110),
        (0, "wait", 110, 300),
        (1, "wait", 0, 160),
        (1, "compute", 160, 190),
        (1, "compute", 190, 240),
    ]
    assert [(m.sender, m.sent_ns - START, m.received_ns - START) for m in found.messages] == [
        (0, 100, 160),
        (1, 240, 300),
    ]


def test_one_token_is_cut_out() -> None:
    program, recording = there_and_back()
    found = timeline(program, recording, token=1)
    assert [token.number for token in found.tokens] == [1]
    assert len(found.messages) == 1
    assert min(one.start_ns for one in found.intervals) == START + 190
    assert typical_token(program, recording) == 1, "190 and 110: the lower median"
    with pytest.raises(UsageError, match="there is no token 2; the run has 0 to 1"):
        timeline(program, recording, token=2)


@pytest.mark.parametrize("pattern", ["chain", "pipeline", "all-reduce-mesh", "all-reduce-ring", "bulk"])
def test_every_real_token_is_explained_without_a_gap(pattern: str) -> None:
    program = make_program(pattern, 4, 4096, tokens=5, compute_ns=2_000_000)
    costly = msgspec.structs.replace(WAY, cost_ns=500_000)
    program = msgspec.structs.replace(
        program,
        connections=tuple(msgspec.structs.replace(c, a_to_b=costly, b_to_a=costly) for c in program.connections),
    )
    records = play(program)
    start = min(array("q", record.computed_ns)[0] for record in records if record.computed_ns)
    found = timeline(program, Recording(start_ns=start, ended_ns=0, nodes=tuple(records)))
    for token in found.tokens:
        assert token.path[0].start_ns == token.start_ns
        assert token.path[-1].end_ns == token.end_ns
        for earlier, later in pairwise(token.path):
            assert earlier.end_ns == later.start_ns
            assert later.node == (earlier.peer if earlier.what == "wire" else earlier.node)
        assert {"compute", "send", "wire"} <= {one.what for one in token.path}
    for node in range(4):
        own = [one for one in found.intervals if one.node == node]
        assert all(earlier.end_ns == later.start_ns for earlier, later in pairwise(own))


def test_trace_and_picture(tmp_path: Path) -> None:
    program, recording = there_and_back()
    found = timeline(program, recording)
    write_trace(found, "two nodes", tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "b", "e"}
    computed = [e for e in events if e.get("cat") == "compute" and e["tid"] == 1]
    assert [(e["ts"], e["dur"]) for e in computed] == [(0.16, 0.03), (0.19, 0.05)]
    draw_timeline(found, "two nodes", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match="name a file that can be written"):
        write_trace(found, "", tmp_path / "missing" / "trace.json")
