"""From workload files to programs: shipped files, bad input, and the figures a program takes from its plan."""

from pathlib import Path

import msgspec
import pytest

from emulator.errors import SpecError
from emulator.spec.load import load, parse
from emulator.spec.shipped import shipped
from emulator.spec.workload import Workload
from emulator.study.prepare import read_plan
from emulator.workload.program import Program, decode, encode, program
from emulator.workload.vector import Vectors, from_bytes, join, split, to_bytes

ON = {"aggregate": "dual-plane-8", "hierarchical": "dual-plane-8"}
BASE = "name: w\ndescription: d\npattern: chain\n"


def made(topology: str, text: str = "", sets: tuple[str, ...] = (), workload: str = "token-exchange") -> Program:
    plan = read_plan(topology, ignore_ports=True)
    if text:
        return program(plan, parse(text, Path("w.yaml"), Workload, sets))
    return program(plan, load(shipped("workload")[workload], Workload, sets))


def test_the_shipped_workloads_are_those_of_the_manual() -> None:
    named = "aggregate all-reduce-mesh all-reduce-ring bulk pipeline token-exchange token-exchange-compute"
    assert set(named.split()) <= set(shipped("workload"))


@pytest.mark.parametrize("name", sorted(shipped("workload")))
def test_every_shipped_workload_fits_a_shipped_topology(name: str) -> None:
    found = made(ON.get(name, "mesh4-tb5-rdma"), workload=name)
    assert found.workload == name
    assert decode(encode(found)) == found


def test_token_exchange_is_three_exchanges_of_14336_bytes() -> None:
    found = made("mesh4-tb5-rdma")
    assert (found.pattern, found.parameters, found.team.payload_bytes) == ("chain", {"exchanges": 3}, 14336)
    assert found.compute_ns == (0, 0, 0, 0)
    compute = made("mesh4-tb5-rdma", workload="token-exchange-compute")
    assert msgspec.structs.replace(
        compute, workload="", description="", compute_ns=found.compute_ns
    ) == msgspec.structs.replace(found, workload="", description="")
    assert sum(compute.compute_ns) == 800_000, "the four nodes of a token compute 800 us in all"


def test_compute_time_may_differ_from_node_to_node() -> None:
    found = made("mesh4-tb5-rdma", sets=("compute_per_node={n3: 7us, n0..n2: 5ms}",))
    assert found.compute_ns == (5_000_000, 5_000_000, 5_000_000, 7_000)


def test_payload_comes_from_hidden_size_and_precision() -> None:
    assert made("mesh4-tb5-rdma", BASE + "hidden_size: 7168\nprecision: 16bit\n").team.payload_bytes == 14336
    assert made("mesh4-tb5-rdma", BASE + "hidden_size: 7168\nprecision: 4bit\n").team.payload_bytes == 3584


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("payload: 64B\nhidden_size: 64\n", "w.yaml:4:10: is given, and hidden_size and precision too"),
        ("hidden_size: 64\n", "says no size; write `payload: 14336B`"),
        ("", "says no size"),
        ("payload: 14336\n", "w.yaml:4:10: 14336 has no unit"),
        ("payload: 0B\n", "write 1B to 1TiB"),
        ("hidden_size: 3\nprecision: 4bit\n", "no whole number of bytes"),
        ("payload: 64B\ntokens: 0\n", "w.yaml:5:9: 0 is out of bounds"),
        ("payload: 64B\ntokens: many\n", "not a whole number"),
        ("payload: 64B\nexchanges: 3\n", "unknown key `exchanges`"),
        ("payload: 64B\nparameters: {exchange: 3}\n", "unknown parameter `exchange`; known: exchanges"),
        ("payload: 64B\nparameters: {exchanges: 0}\n", "w.yaml:5:1: parameter `exchanges`: expected `int` >= 1"),
        ("payload: 64B\nparameters: {exchanges: yes}\n", "expected `int`, got `str`"),
        ("payload: 64B\nnodes: [n0, n9]\n", "w.yaml:5:1: topology mesh4-tb5-rdma has no node `n9`; it has n0, n1"),
        ("payload: 64B\nnodes: [n0, n0]\n", "names `n0` twice"),
        ("payload: 64B\nnodes: [n1]\n", "messages need two nodes, and there is 1"),
        ("payload: 64B\nnodes: [n3..n1]\n", "not a range of names"),
        ("payload: 64B\ncompute_per_node: 5\n", "5 has no unit"),
        ("payload: 64B\ncompute_per_node: {n0: 5}\n", "w.yaml:5:24: 5 has no unit"),
        ("payload: 64B\ncompute_per_node: {n0: 5ms}\n", "`n1` takes part and has no compute time"),
        ("payload: 64B\ncompute_per_node: {n0..n3: 5ms, n4: 1ms}\n", "`n4` does not take part"),
        ("payload: 64B\ncompute_per_node: {n0..n3: 5ms, n3: 1ms}\n", "names `n3` twice"),
        ("payload: 64B\ncompute_per_node: {n3..n0: 5ms}\n", "not a range of names"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_what_to_write(text: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        made("mesh4-tb5-rdma", BASE + text)
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["chain2", "Chain", "os", "../x", "base", ""])
def test_unknown_patterns_are_refused_with_place(name: str) -> None:
    with pytest.raises(SpecError, match=r"w\.yaml:3") as error:
        made("mesh4-tb5-rdma", f"name: w\ndescription: d\npattern: '{name}'\npayload: 64B\n")
    assert "known: aggregate" in str(error.value) or "did you mean `chain`" in str(error.value) or not name


def test_values_are_set_from_the_command_line() -> None:
    found = made("mesh4-tb5-rdma", sets=("payload=64B", "parameters.exchanges=5", "nodes=[n2, n0]", "tokens=7"))
    assert (found.team.payload_bytes, found.parameters, found.team.nodes) == (64, {"exchanges": 5}, ("n2", "n0"))
    assert found.tokens == 7


def test_aggregate_needs_a_dual_plane() -> None:
    with pytest.raises(SpecError, match="aggregate needs two planes and two groups"):
        made("mesh4-tb5-rdma", workload="aggregate")


@pytest.mark.parametrize(("topology", "across"), [("dual-plane-8", 2), ("dual-plane-8-rails", 4)])
def test_aggregate_binds_each_connection_to_its_plane(topology: str, across: int) -> None:
    plan, found = read_plan(topology), made(topology, workload="aggregate")
    planes = [connection.plane for connection in found.connections]
    assert (planes.count("a"), planes.count("b")) == (12, across)
    for connection in found.connections:
        names = {found.team.nodes[connection.a], found.team.nodes[connection.b]}
        cable = next(c for c in plan.cables if c.plane == connection.plane and {c.a.node, c.b.node} == names)
        assert connection.address in (cable.a.address.split("/")[0], cable.b.address.split("/")[0])
        assert connection.a_to_b.delay_ns == cable.a.egress.delay_ns


def test_a_direction_knows_its_way() -> None:
    (connection, *_) = made("mesh4-tb5-rdma").connections
    assert connection.address == read_plan("mesh4-tb5-rdma").node("n1").address
    # 40 us, and 14336 bytes in two packets with 66 bytes of headers each at 80 Gbit/s.
    assert connection.a_to_b.expected_ns(14336) == 40_000 + round((14336 + 2 * 66) * 8 / 80)
    assert connection.a_to_b.expected_ns(64) == 40_013
    assert connection.in_flight_bytes == 800_000


def test_a_way_through_a_switch_has_both_cables_and_the_first_packet_twice() -> None:
    plan = read_plan("switch16")
    (connection, *_) = made("switch16").connections
    cable = plan.cables[0]
    rate = cable.a.egress.rate_bps
    assert connection.a_to_b.rates_bps == (rate, rate)
    assert connection.a_to_b.delay_ns == 2 * cable.a.egress.delay_ns
    wire = (14336 + 2 * 66 + 9000 + 14) * 8e9 / rate
    assert connection.a_to_b.expected_ns(14336) == connection.a_to_b.delay_ns + round(wire)


def test_a_way_over_other_nodes_adds_up_delays_and_costs() -> None:
    plan = read_plan("ring4")
    plan = msgspec.structs.replace(
        plan, cables=tuple(msgspec.structs.replace(cable, host_cost_ns=700) for cable in plan.cables)
    )
    found = program(plan, parse(BASE + "payload: 64B\nnodes: [n0, n2]\n", Path("w.yaml"), Workload))
    (connection,) = found.connections
    delay = plan.cables[0].a.egress.delay_ns
    assert (connection.a_to_b.delay_ns, connection.a_to_b.cost_ns) == (2 * delay, 1400)


def test_vectors_add_up_and_come_apart() -> None:
    for size, nodes, pieces in ((10, 2, 5), (14336, 7, 3), (16, 256, 8)):
        everyone = [Vectors(size, nodes, node) for node in range(nodes)]
        for turn in (0, 7, 8):
            total = sum(vectors.own(turn) for vectors in everyone)
            everyone[0].check(total, turn)
            with pytest.raises(ValueError, match="wrong sum"):
                everyone[0].check(total - everyone[1].own(turn) + everyone[1].own(turn + 1), turn)
            assert from_bytes(to_bytes(total, size)) == total, "no element overflows"
            parts, sizes = split(total, size, pieces)
            assert (join(parts, sizes), sum(sizes)) == (total, size)
