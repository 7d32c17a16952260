"""Engines, published points and the fit: what programs they make, and what is refused. Runs are in tests/guest."""

from array import array
from pathlib import Path

import msgspec
import pytest

from emulator.errors import SpecError
from emulator.plan.model import Plan
from emulator.spec.load import load, parse
from emulator.spec.model import Model
from emulator.spec.shipped import shipped
from emulator.study.engine import ENGINES, Job, Per, compute_ns, job
from emulator.study.fit import fit_cost
from emulator.study.predict import count_bytes, read_model
from emulator.study.prepare import read_plan
from emulator.study.published import Point, published
from emulator.workload.recording import LinkRecord, NodeRecord, Recording
from tests.unit.test_workload_patterns import make_program, messages, play


def made(
    engine: str,
    model: str,
    topology: str,
    nodes: int = 4,
    free_cost_ns: int = 0,
    per: Per = "message",
    context: int = 0,
) -> Job:
    return job(
        engine, read_model(model), read_plan(topology), nodes,
        efficiency=0.5, context=context, free_cost_ns=free_cost_ns, per=per, tokens=3,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "times", "payload"),
    [
        ("deepseek-v3", 122, 14336),
        ("kimi-k2", 122, 14336),
        ("qwen3-235b", 188, 8192),
        ("qwen3-30b", 96, 4096),
        ("llama-3-70b", 160, 16384),
        ("llama-3.1-405b", 252, 32768),
    ],
)
def test_tensor_parallel_all_reduces_are_those_of_the_published_table(model: str, times: int, payload: int) -> None:
    program = made("exo-tensor", model, "mesh4-tb5-rdma").program
    assert (program.pattern, program.parameters["times"], program.team.payload_bytes) == (
        "tensor-parallel", times, payload,
    )  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_every_engine_gives_all_of_the_weights_to_its_nodes(engine: str, nodes: int) -> None:
    split = ENGINES[engine].split(read_model("qwen3-235b"), (10**12,) * nodes)
    assert (len(split.layers), len(split.head)) == (nodes, nodes)
    assert sum(split.layers) == pytest.approx(1)
    assert sum(split.head) == pytest.approx(1)


@pytest.mark.parametrize("engine", ENGINES)
def test_compute_on_the_path_is_that_of_the_pattern(engine: str) -> None:
    from emulator.workload.patterns import load_pattern

    found = made(engine, "qwen3-30b", "switch4-gbe")
    pattern = load_pattern(found.program.pattern, found.program.parameters)
    in_pattern = pattern.compute_on_path_ns(found.program.team, found.program.compute_ns)
    assert in_pattern == pytest.approx(found.compute_ns, rel=1e-5)
    plan, model = read_plan("switch4-gbe"), read_model("qwen3-30b")
    assert compute_ns(model, plan, engine, 4, 0.5, 0) == found.compute_ns
    shares = 4 if found.split.collectives else 1
    assert found.compute_ns == pytest.approx(model.decode_ns(17 * 10**9, efficiency=0.5) / shares, rel=1e-6)


def test_layers_go_where_the_memory_is() -> None:
    split = ENGINES["exo-pipeline"].split(read_model("llama-3-70b"), (512, 256, 256, 256))
    assert [share * 80 for share in split.layers] == pytest.approx([32, 16, 16, 16])
    assert split.head == (0, 0, 0, 1)
    unknown = ENGINES["llama.cpp-rpc"].split(read_model("llama-3-70b"), (512, 0, 256))
    assert [round(share * 80) for share in unknown.layers] == [27, 27, 26], "even, where not all memory is known"


def test_a_context_is_read_too() -> None:
    without, with_it = (made("exo-tensor", "qwen3-235b", "mesh4-tb5-rdma", context=n).compute_ns for n in (0, 1000))
    kv = 1000 * read_model("qwen3-235b").kv_bytes
    assert with_it - without == pytest.approx(kv * 1e9 / (0.5 * 819e9) / 4, abs=1)


def test_the_free_cost_is_slept_per_all_reduce_or_by_the_sender_of_each_message() -> None:
    free = made("exo-tensor", "qwen3-235b", "mesh4-tb5-rdma").program
    each = made("exo-tensor", "qwen3-235b", "mesh4-tb5-rdma", free_cost_ns=7000, per="all-reduce").program
    assert [a - b for a, b in zip(each.compute_ns, free.compute_ns, strict=True)] == [188 * 7000] * 4
    assert each.connections == free.connections
    sent = made("exo-tensor", "qwen3-235b", "mesh4-tb5-rdma", free_cost_ns=7000, per="message").program
    assert sent.compute_ns == free.compute_ns
    assert {way.cost_ns for c in sent.connections for way in (c.a_to_b, c.b_to_a)} == {7000}


@pytest.mark.parametrize("nodes", [4, 8])
def test_the_documents_model_of_over_700_gb_fits_the_pooled_memory(nodes: int) -> None:
    plan = read_plan("mesh8-tb5-rdma", ignore_ports=True)
    assert compute_ns(read_model("documents-670b"), plan, "exo-tensor", nodes, 0.55, 0) > 0


def _with_memory(memory_bytes: int) -> Plan:
    plan = read_plan("mesh8-tb5-rdma", ignore_ports=True)
    return msgspec.structs.replace(
        plan, nodes=tuple(msgspec.structs.replace(node, memory_bytes=memory_bytes) for node in plan.nodes)
    )


def test_a_model_that_does_not_fit_is_refused_with_what_it_takes() -> None:
    plan, model = _with_memory(128 * 10**9), read_model("documents-670b")
    with pytest.raises(SpecError, match=r"takes 711\.9 GB, and 4 nodes of mesh8-tb5-rdma have 512\.0 GB in all"):
        compute_ns(model, plan, "exo-tensor", 4, 0.55, 0)
    assert compute_ns(model, plan, "exo-tensor", 8, 0.55, 0) > 0
    # A context of two million tokens, 70272 bytes each, is too much for eight of them.
    with pytest.raises(SpecError, match="takes 852"):
        compute_ns(model, _with_memory(100 * 10**9), "exo-tensor", 8, 0.55, 2_000_000)
    # In all it would fit; on the node with less it does not.
    uneven = msgspec.structs.replace(
        plan, nodes=(msgspec.structs.replace(plan.nodes[0], memory_bytes=10**12), *plan.nodes[1:])
    )
    with pytest.raises(SpecError, match="node n1 has to hold 178"):
        compute_ns(model, uneven, "exo-tensor", 4, 0.55, 0)


def test_what_is_missing_or_unknown_is_named() -> None:
    plan, model = read_plan("mesh4-tb5-rdma"), read_model("qwen3-30b")
    with pytest.raises(SpecError, match="unknown engine `exo-tensors`; did you mean `exo-tensor`"):
        compute_ns(model, plan, "exo-tensors", 4, 0.55, 0)
    bare = msgspec.structs.replace(
        plan, nodes=tuple(msgspec.structs.replace(node, memory_bandwidth_bytes_per_s=0) for node in plan.nodes)
    )
    with pytest.raises(SpecError, match="node n0 has no memory bandwidth"):
        compute_ns(model, bare, "exo-tensor", 4, 0.55, 0)


def test_published_points_are_of_shipped_models_topologies_and_known_engines() -> None:
    points = published()
    assert len({point.id for point in points}) == len(points) > 5
    for point in points:
        assert point.engine in ENGINES
        assert point.model in shipped("model")
        assert point.nodes <= len(read_plan(point.topology).computing)
        assert 1e6 < point.token_ns < 1e9
        assert point.source


def test_points_from_the_command_line() -> None:
    point = Point.parse("2=26.2", "exo-tensor", "m", "t")
    assert (point.nodes, point.compute_ns) == (2, None)
    assert point.token_ns == pytest.approx(1e9 / 26.2)
    assert Point.parse("1=20", "exo-tensor", "m", "t").compute_ns == 5e7
    assert Point.parse("dllama-r1-distill-8b-4", "x", "y", "z").compute_ns == 111.6e6


@pytest.mark.parametrize("text", ["2=", "=3", "two=3", "2=-1", "0=5", "2=nan", "2=inf"])
def test_wrong_points_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"write NODES=TOKENS_PER_SECOND"):
        Point.parse(text, "exo-tensor", "m", "t")


def test_unknown_points_are_suggested() -> None:
    with pytest.raises(SpecError, match="did you mean `exo-qwen3-235b-2`"):
        Point.parse("exo-qwen-235b-2", "exo-tensor", "m", "t")


def _point(nodes: int, token_ns: float) -> Point:
    return Point.parse(f"{nodes}={1e9 / token_ns!r}", "e", "m", "t")


def test_a_fit_on_one_point_meets_it() -> None:
    for wanted in (0, 61_234, 2_500_000):
        assert fit_cost([_point(2, 3e7 + 188 * wanted)], lambda _, cost: 3e7 + 188 * cost) == wanted


def test_a_fit_finds_its_way_where_the_cost_hides_behind_the_wire() -> None:
    def hidden(_: Point, cost: int) -> float:
        return 1e7 + max(64 * 3 * cost, 64 * 107_000) + 10 * cost

    assert fit_cost([_point(4, hidden(_point(4, 1), 20_000))], hidden) == pytest.approx(20_000, rel=0.01)


def test_a_fit_on_two_points_lies_between_them_and_none_is_below_zero() -> None:
    points = [_point(2, 3e7 + 100 * 60_000), _point(4, 3e7 + 100 * 90_000)]
    assert 60_000 < fit_cost(points, lambda _, cost: 3e7 + 100 * cost) < 90_000
    assert fit_cost([_point(2, 2e7)], lambda _, cost: 3e7 + 100 * cost) == 0
    assert fit_cost([], lambda _, cost: 3e7 + cost) == 0


@pytest.mark.parametrize(("nodes", "size"), [(2, 64), (3, 14336), (4, 200_000)])
def test_pipeline_gather_hands_the_state_on_and_then_to_all(nodes: int, size: int) -> None:
    records = play(make_program("pipeline-gather", nodes, size, tokens=3))
    assert messages(records) == 3 * (nodes - 1 + nodes * (nodes - 1))
    assert all(all(array("q", record.ends_ns)) for record in records)


def test_bytes_are_counted_from_the_recording() -> None:
    program = make_program("all-reduce-mesh", 2, 64, tokens=2)
    both = array("q", [1, 2]).tobytes()
    sizes = array("q", [10, 30]).tobytes()
    nodes = tuple(
        NodeRecord(
            ends_ns=both,
            links=(LinkRecord(connection=0, sent_ns=both, sizes=own, received_ns=both, retransmissions=0),),
        )
        for own in (sizes, b"")
    )
    traffic = count_bytes(program, Recording(start_ns=0, ended_ns=3, nodes=nodes))
    assert (traffic["n0"].sent, traffic["n0"].received) == (20, 64)
    assert (traffic["n1"].sent, traffic["n1"].received) == (64, 20)


def test_a_card_of_ones_own_is_read_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(shipped("model")["qwen3-30b"].read_text().replace("name: qwen3-30b", "name: mine"))
    assert read_model(str(file)).name == "mine"
    assert load(file, Model) == parse(file.read_text(), file, Model)
