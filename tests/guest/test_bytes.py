"""Bytes on the cables: what a formula says, what the recording holds, and what the kernel counted, all the same.

A cable's counters hold whole frames. Headers come off packet by packet; what a run costs besides its tokens
(connections, congestion windows, warm-up) comes off by taking the difference of two runs that differ in their number of
tokens alone.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.fabric.inspect import CableState, DirectionState
from emulator.place.choose import choose
from emulator.place.cluster import Cluster
from emulator.place.life import temporary
from emulator.study.measure import measure
from emulator.study.predict import count_bytes
from emulator.study.prepare import read_plan, read_program
from emulator.workload.connection import HEADER_BYTES
from emulator.workload.program import Program
from emulator.workload.recording import Recording
from emulator.workload.result import Result

PAYLOAD = 14_336
"""Bytes: the hidden state of 7168 values of 16 bits."""
TIMES = 2
"""All-reduces of a token."""
FEW, MANY = 4, 12
"""Tokens. Multiples of four: a chain of three exchanges over four nodes begins on the same one again."""

Bytes = dict[str, tuple[int, int]]
"""By node: sent and received for a token."""

MESH = dict.fromkeys(("n0", "n1", "n2", "n3"), (TIMES * 3 * PAYLOAD, TIMES * 3 * PAYLOAD))
RING = dict.fromkeys(MESH, (TIMES * 6 * PAYLOAD // 4, TIMES * 6 * PAYLOAD // 4))
"""2(n - 1) steps of a quarter of the vector."""
CHAIN = dict.fromkeys(MESH, (3 * PAYLOAD // 4, 3 * PAYLOAD // 4))
"""Three messages, shared by four nodes in turn."""
PIPELINE = dict.fromkeys(MESH, (PAYLOAD, PAYLOAD))
STAR_TRIP = 4 * 4096 + 2 * 32
"""A hidden state of 4096 values of 32 bits and two commands there; the state and an answer back."""
STAR = {"n0": (3 * STAR_TRIP, 3 * STAR_TRIP), **dict.fromkeys(("n1", "n2", "n3"), (STAR_TRIP, STAR_TRIP))}

LAYERS, DIMENSION, VOCABULARY = 32, 4096, 128_256
VECTOR = DIMENSION * 34 // 32
"""A q80 vector: 34 bytes for 32 values."""
LLAMA = {
    "n0": (3 * (2 * LAYERS * VECTOR + 4 * DIMENSION), 3 * (2 * LAYERS * VECTOR + 4 * VOCABULARY // 4)),
    **dict.fromkeys(
        ("n1", "n2", "n3"),
        (3 * 2 * LAYERS * VECTOR + 4 * VOCABULARY // 4, 3 * 2 * LAYERS * VECTOR + 4 * DIMENSION),
    ),
}
"""The input to all and vectors of all, two for each layer; slices of the logits to the root."""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        directory = tmp_path_factory.mktemp("state", numbered=True) / "emu"
        patch.setenv("EMU_STATE_DIR", str(directory))
        yield directory


def standing(topology: str) -> Iterator[Cluster]:
    plan = read_plan(topology, cluster=topology, ideal=True)
    with temporary(
        plan,
        choose("guest", "virtual"),
        file=topology,
        memory="512MiB",
        seed=1,
        ideal=True,
        progress=lambda *_: None,
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def mesh4(state: Path, kernel: Path) -> Iterator[Cluster]:
    del state, kernel
    yield from standing("mesh4-tb5-rdma")


def payload(direction: DirectionState) -> int:
    return direction.traffic.bytes - HEADER_BYTES * direction.traffic.packets


def on_cables(before: tuple[CableState, ...], after: tuple[CableState, ...], nodes: tuple[str, ...]) -> Bytes:
    """Bytes without headers that left and reached each node."""
    sent, received = dict.fromkeys(nodes, 0), dict.fromkeys(nodes, 0)
    for was, now in zip(before, after, strict=True):
        for old, new in ((was.a_to_b, now.a_to_b), (was.b_to_a, now.b_to_a)):
            for name, found in ((new.sender, sent), (new.receiver, received)):
                if name in found:
                    found[name] += payload(new) - payload(old)
    return {name: (sent[name], received[name]) for name in nodes}


def run(cluster: Cluster, workload: str, tokens: int, settings: tuple[str, ...]) -> tuple[Result, Bytes, Bytes]:
    """The result, what the recording says of each token, and what the cables carried in all."""
    program = read_program(cluster.record.plan, workload, tokens=tokens, settings=(*settings, "warmup_tokens=2"))
    recorded: Bytes = {}

    def count(program: Program, recording: Recording) -> None:
        found = count_bytes(program, recording)
        recorded.update({name: (each.sent, each.received) for name, each in found.items()})

    before = cluster.inspect()
    result = measure(cluster, program, limit_s=60, progress=lambda *_: None, recorded=count)
    return result, recorded, on_cables(before, cluster.inspect(), program.team.nodes)


def check(cluster: Cluster, workload: str, settings: tuple[str, ...], formula: Bytes) -> None:
    (first, _, few), (second, recorded, many) = (run(cluster, workload, tokens, settings) for tokens in (FEW, MANY))
    # What TCP sends twice while it starts comes off with the rest of what a run costs besides its tokens.
    assert first.retransmissions == second.retransmissions
    for result in (first, second):
        ways = [way for cable in result.cables for way in (cable.a_to_b, cable.b_to_a)]
        assert sum(way.traffic.drops + way.traffic.receive_drops for way in ways) == 0
    more = MANY - FEW
    counted = {name: (many[name][0] - few[name][0], many[name][1] - few[name][1]) for name in many}
    assert counted == {name: (more * sent, more * received) for name, (sent, received) in formula.items()}
    assert recorded == formula


SIZE = f"payload={PAYLOAD}B"


@pytest.mark.parametrize(
    ("workload", "settings", "formula"),
    [
        ("tensor-parallel", (f"parameters.times={TIMES}", "parameters.algorithm=mesh"), MESH),
        ("deepseek-v3-all-reduces", (f"parameters.times={TIMES}",), MESH),
        ("all-reduce-ring", (SIZE, f"parameters.times={TIMES}"), RING),
        ("token-exchange", ("parameters.exchanges=3",), CHAIN),
        ("pipeline", (), PIPELINE),
        ("star", ("parameters.round_trips=2", "parameters.command_bytes=32", "parameters.graph_bytes=0"), STAR),
    ],
)
def test_formula_recording_and_counters_agree(
    mesh4: Cluster, workload: str, settings: tuple[str, ...], formula: Bytes
) -> None:
    check(mesh4, workload, settings, formula)


def test_distributed_llama_moves_the_published_bytes_over_its_switch(state: Path, kernel: Path) -> None:
    del state, kernel
    assert LLAMA["n0"] == (884_736, 1_220_352)
    for cluster in standing("switch4-gbe"):
        check(cluster, "distributed-llama", (), LLAMA)
