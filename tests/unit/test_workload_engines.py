"""Patterns of engines over real TCP connections of this host: bytes sent and received equal the published formulas."""

import pytest

from emulator.errors import WorkloadError
from emulator.workload.patterns import load_pattern
from emulator.workload.patterns.expert_parallel import DRAWS, ExpertParallel
from emulator.workload.program import Program
from emulator.workload.recording import NodeRecord
from tests.unit.test_workload_patterns import GROUPS, PLANES, flipping_pair, make_program, play, stamps


def traffic(program: Program, records: list[NodeRecord]) -> list[tuple[int, int]]:
    """Bytes of payload that each node sent and received."""
    sent = [0] * len(records)
    received = [0] * len(records)
    for index, record in enumerate(records):
        for link in record.links:
            ends = program.connections[link.connection]
            size = sum(stamps(link.sizes)) if link.sizes else program.team.payload_bytes * len(stamps(link.sent_ns))
            sent[index] += size
            received[ends.b if index == ends.a else ends.a] += size
    return list(zip(sent, received, strict=True))


def test_distributed_llama_sends_what_was_published() -> None:
    """R1-Distill-8B on four nodes: 864 KiB sent, 1191.75 KiB received per token at the root."""
    program = make_program("distributed-llama", 4, 16384, tokens=1, warmup=0)
    root, *workers = traffic(program, play(program))
    assert root == (884_736, 1_220_352)
    q80 = 64 * 4352
    assert workers == [(3 * q80 + 128_256, 3 * q80 + 16_384)] * 3


@pytest.mark.parametrize("nodes", [2, 4, 8])
@pytest.mark.parametrize(
    ("algorithm", "sent"),
    [
        ("mesh", lambda nodes, size: (nodes - 1) * size),
        ("ring", lambda nodes, size: 2 * (nodes - 1) * size // nodes),
        ("reduce-scatter-all-gather", lambda nodes, size: 2 * (nodes - 1) * size // nodes),
        ("recursive-doubling", lambda nodes, size: (nodes.bit_length() - 1) * size),
    ],
)
def test_tensor_parallel(algorithm: str, sent: object, nodes: int) -> None:
    assert callable(sent)
    program = make_program(
        "tensor-parallel", nodes, 14336, tokens=3, warmup=0, parameters={"times": 4, "algorithm": algorithm}
    )
    expected = 3 * 4 * sent(nodes, 14336)
    assert traffic(program, play(program)) == [(expected, expected)] * nodes


@pytest.mark.parametrize(
    ("size", "nodes", "per_node"), [(32768, 4, 3 * 32768), (32776, 4, 6 * 8194), (65536, 2, 65536)]
)
def test_tensor_parallel_chooses_as_mlx_does(size: int, nodes: int, per_node: int) -> None:
    program = make_program("tensor-parallel", nodes, size, tokens=1, warmup=0, parameters={"times": 1})
    assert traffic(program, play(program)) == [(per_node, per_node)] * nodes


@pytest.mark.parametrize("trips", [1, 2, 3])
def test_star_hands_its_state_to_each_node_and_takes_it_back(trips: int) -> None:
    program = make_program("star", 4, 8192, tokens=2, warmup=0, parameters={"round_trips": trips})
    each = 8192 + 32 * trips
    assert traffic(program, play(program)) == [(2 * 3 * each, 2 * 3 * each)] + [(2 * each, 2 * each)] * 3


@pytest.mark.parametrize("copies", ["each-expert", "each-node"])
@pytest.mark.parametrize("skew", [0, 120])
def test_expert_parallel_sends_each_copy_there_and_back(copies: str, skew: int) -> None:
    parameters: dict[str, int | str] = {"experts": 16, "top_k": 4, "batch": 5, "dispatch_bytes": 100}
    parameters |= {"copies": copies, "skew_percent": skew}
    program = make_program("expert-parallel", 4, 200, tokens=3, warmup=0, parameters=parameters)
    pattern = load_pattern("expert-parallel", parameters)
    assert isinstance(pattern, ExpertParallel)
    draws = pattern.routing(4)[:3]
    out = [sum(draw[a][b] for draw in draws for b in range(4) if b != a) for a in range(4)]
    into = [sum(draw[b][a] for draw in draws for b in range(4) if b != a) for a in range(4)]
    expected = [(100 * o + 200 * i, 100 * i + 200 * o) for o, i in zip(out, into, strict=True)]
    assert traffic(program, play(program)) == expected
    if copies == "each-expert":
        assert all(sum(row) == 5 * 4 for draw in draws for row in draw)


def test_skew_makes_some_nodes_busier() -> None:
    def busiest(skew: int) -> int:
        draws = ExpertParallel(batch=64, skew_percent=skew).routing(8)
        assert len(draws) == DRAWS
        return max(sum(row[home] for row in draw) for draw in draws for home in range(8))

    assert busiest(0) < 1.2 * 64 * 8 < 1.5 * 64 * 8 < busiest(150)


def test_pipeline_of_micro_batches() -> None:
    program = make_program("pipeline", 3, 100, tokens=2, warmup=0, parameters={"micro_batches": 4})
    assert traffic(program, play(program)) == [(2 * 4 * 100, 2 * 4 * 100)] * 3
    found = load_pattern("pipeline", {"micro_batches": 4})
    assert found.compute_on_path_ns(program.team, (400, 800, 400)) == 100 + 200 + 100 + 3 * 200


def test_hierarchical_sends_only_pieces_within_groups() -> None:
    program = make_program(
        "hierarchical", 6, 1000, tokens=2, warmup=0, parameters={"times": 3}, groups=GROUPS, planes=PLANES
    )
    # Aggregators: a piece to the other one, one across, the sum of theirs to two. Others: a piece to each aggregator.
    aggregator, other = 6 * 500 * (1 + 1 + 2), 6 * 500 * 2
    assert [sent for sent, _ in traffic(program, play(program))] == [aggregator, aggregator, other] * 2


def test_sequence_parallel_hands_blocks_round() -> None:
    parameters: dict[str, int | str] = {"layers": 2, "prompt_tokens": 30}
    program = make_program("sequence-parallel", 3, 64, tokens=2, warmup=0, parameters=parameters)
    assert traffic(program, play(program)) == [(2 * 2 * 2 * 640, 2 * 2 * 2 * 640)] * 3


@pytest.mark.parametrize("transfer", ["each-layer", "at-end"])
def test_prefill_decode(transfer: str) -> None:
    parameters: dict[str, int | str] = {"layers": 3, "prompt_tokens": 7, "transfer": transfer}
    program = make_program("prefill-decode", 4, 64, tokens=2, warmup=0, parameters=parameters)
    there, back = 2 * 3 * 7 * 64, 2 * 16
    assert traffic(program, play(program)) == [(there, back)] * 2 + [(back, there)] * 2


@pytest.mark.parametrize(("gradients", "size"), [("32bit", 1200), ("16bit", 600)])
def test_training_step_reduces_each_bucket_round_the_ring(gradients: str, size: int) -> None:
    parameters: dict[str, int | str] = {"buckets": 4, "gradients": gradients}
    program = make_program("training-step", 3, 4800, tokens=2, warmup=0, parameters=parameters)
    each = 2 * 4 * 2 * 2 * size // 3
    assert traffic(program, play(program)) == [(each, each)] * 3


def test_checkpointing_computes_the_forward_pass_again() -> None:
    team = make_program("training-step", 3, 4800).team
    for checkpointing, expected in (("none", 2400), ("full", 3200)):
        found = load_pattern("training-step", {"buckets": 4, "checkpointing": checkpointing})
        assert found.compute_on_path_ns(team, (2400, 1200, 600)) == expected


@pytest.mark.parametrize(
    ("pattern", "size", "parameters"),
    [
        ("star", 600, {}),
        ("distributed-llama", 16384, {"layers": 2}),
        ("expert-parallel", 600, {"experts": 6, "top_k": 6}),
    ],
)
def test_a_changed_bit_is_noticed(pattern: str, size: int, parameters: dict[str, int | str]) -> None:
    program = make_program(pattern, 3, size, tokens=5, parameters=parameters)
    # Zeros that open the window go before the messages, where what is sent ahead is more than a new connection allows.
    opening = (4 * program.ahead_bytes // 65536 + 1) * 65536 if program.ahead_bytes > 8 * 8948 else 0
    with pytest.raises(WorkloadError, match="came with a content that n0 did not send"):
        play(program, {0: flipping_pair(500 + opening)})


def test_a_literal_says_what_to_write() -> None:
    with pytest.raises(ValueError, match="parameter `algorithm`: write one of auto, mesh, ring"):
        load_pattern("tensor-parallel", {"algorithm": "tree"})
