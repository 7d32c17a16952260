"""The plan: names, addresses, routes, queues, of shipped topologies and of odd ones."""

import ipaddress
from itertools import combinations
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.plan.build import build
from emulator.plan.model import Plan, decode, encode
from emulator.plan.names import interface_name
from emulator.spec.links import links, load_profiles
from emulator.spec.load import parse
from emulator.spec.shipped import shipped
from emulator.spec.topology import Topology
from emulator.study.prepare import read_plan

TOPOLOGIES = sorted(shipped("topology"))


def plan_of(text: str) -> Plan:
    topology = parse(text, Path("test.yaml"), Topology)
    return build(topology, links(topology, load_profiles(topology), ignore_ports=True), cluster="test")


def chain(names: list[str]) -> Plan:
    nodes = "".join(f"  - name: {name}\n" for name in names)
    return plan_of(
        f"name: chain\ndescription: nodes in a line\nnodes:\n{nodes}"
        "planes:\n  a:\n    shape: line\n    profile: thunderbolt5-tcp\n"
    )


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_shipped_topology_has_unique_names_and_addresses(name: str) -> None:
    plan = read_plan(name, ignore_ports=True)
    ends = [end for cable in plan.cables for end in (cable.a, cable.b)]
    interfaces = [(end.node, end.interface) for end in ends]
    assert len(set(interfaces)) == len(interfaces)
    assert all(len(end.interface) <= 15 for end in ends)
    assert len({end.mac for end in ends}) == len(ends)
    addresses = [end.address for end in ends if end.address] + [node.address for node in plan.computing]
    assert len(set(addresses)) == len(addresses)
    assert len({node.namespace for node in plan.nodes}) == len(plan.nodes)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_node_reaches_every_other(name: str) -> None:
    plan = read_plan(name, ignore_ports=True)
    for node in plan.computing:
        assert {route.node for route in node.routes} == {other.name for other in plan.computing} - {node.name}
        known = {(entry.interface, entry.address) for entry in node.neighbours}
        assert {(route.interface, route.gateway) for route in node.routes} <= known


@pytest.mark.parametrize(
    ("name", "cables"),
    [
        ("mesh4-tb5-rdma", 6),
        ("mesh8-tb5-rdma", 28),
        ("dual-plane-8", 18),
        ("dual-plane-8-rails", 16),
        ("ring4", 4),
        ("switch16", 16),
        ("cost-2", 1),
    ],
)
def test_the_documents_cable_counts(name: str, cables: int) -> None:
    assert len(read_plan(name, ignore_ports=True).cables) == cables


def test_the_dual_plane_has_a_third_fewer_cables_than_the_mesh() -> None:
    mesh, dual = (len(read_plan(name, ignore_ports=True).cables) for name in ("mesh8-tb5-rdma", "dual-plane-8"))
    assert round(100 * (1 - dual / mesh), 1) == 35.7


def test_a_plan_survives_json_and_is_the_same_each_time() -> None:
    plan = read_plan("dual-plane-8")
    assert decode(encode(plan)) == plan
    assert encode(read_plan("dual-plane-8")) == encode(plan)


def test_cables_between_two_nodes_are_networks_of_their_own() -> None:
    for cable in read_plan("mesh4-tb5-rdma").cables:
        a, b = (ipaddress.ip_interface(end.address) for end in (cable.a, cable.b))
        assert a.network == b.network
        assert a != b


def test_fewest_cables_first_then_least_delay() -> None:
    plan = plan_of(
        "name: t\ndescription: a slow direct cable and two ways of two\nnodes: [{count: 4, prefix: n}]\n"
        "planes:\n  a:\n    shape: links\n    profile: thunderbolt5-tcp\n    links:\n"
        "      - {a: n0, b: n1, delay: 10ms}\n      - {a: n0, b: n2}\n      - {a: n2, b: n1}\n"
        "      - {a: n0, b: n3, delay: 1us}\n      - {a: n3, b: n2, delay: 1us}\n"
    )
    to = {route.node: route for route in plan.node("n0").routes}
    assert (to["n1"].hops, to["n1"].delay_ns) == (1, 10_000_000)
    assert to["n2"].hops == 1
    back = {route.node: route for route in plan.node("n3").routes}
    # Over n0 it is 1 us + 10 ms, over n2 1 us + 300 us: both two cables.
    assert (back["n1"].hops, back["n1"].delay_ns) == (2, 301_000)


def test_each_direction_has_its_own_values() -> None:
    plan = plan_of(
        "name: t\ndescription: asymmetric\nnodes: [{count: 2, prefix: n}]\nplanes:\n  a:\n    shape: links\n"
        "    profile: thunderbolt5-tcp\n"
        "    links: [{a: n0, b: n1, a_to_b: {delay: 1us}, b_to_a: {rate: 1Gbit/s}}]\n"
    )
    (cable,) = plan.cables
    assert (cable.a.egress.delay_ns, cable.b.egress.delay_ns) == (1_000, 300_000)
    assert (cable.a.egress.rate_bps, cable.b.egress.rate_bps) == (80_000_000_000, 1_000_000_000)
    assert cable.a.egress.seed != cable.b.egress.seed


def test_a_switch_knows_who_is_behind_each_port_and_nodes_know_each_other() -> None:
    plan = read_plan("switch16")
    switch = next(node for node in plan.nodes if node.kind == "switch")
    assert len(switch.fdb) == 16
    assert all(len(node.neighbours) == 15 for node in plan.computing)
    assert all(route.hops == 2 for node in plan.computing for route in node.routes)


def test_a_queue_holds_what_is_under_way() -> None:
    plan = plan_of(
        "name: t\ndescription: long and fast\nnodes: [{count: 2, prefix: n}]\nplanes:\n  a:\n    shape: line\n"
        "    profile: specialised\n    links: [{a: n0, b: n1, delay: 100ms, jitter: 0us}]\n"
    )
    shaping = plan.cables[0].a.egress
    assert shaping.limit_packets * 64 >= shaping.rate_bps * shaping.delay_ns / 8e9


def test_ideal_leaves_delay_and_rate() -> None:
    plan = read_plan("mesh4-tb5-rdma")
    before, after = (one.cables[0].a.egress for one in (plan, plan.ideal))
    assert before.jitter_ns
    assert after == msgspec.structs.replace(before, jitter_ns=0)


def test_long_and_alike_node_names_stay_apart() -> None:
    names = [f"{'a-very-long-host-name-in-rack-12-' * 2}{index}"[-63:].lstrip("-") for index in range(6)]
    plan = chain(names)
    assert {len(end.interface) <= 15 for cable in plan.cables for end in (cable.a, cable.b)} == {True}


@given(st.lists(st.text("ab-.", min_size=1, max_size=40), min_size=2, max_size=30))
def test_interface_names_are_unique_and_short(peers: list[str]) -> None:
    taken: list[str] = []
    for peer in peers:
        taken.append(interface_name("plane", peer, taken))
    assert all(len(name) <= 15 for name in taken)
    assert all(a != b for a, b in combinations(taken, 2))
