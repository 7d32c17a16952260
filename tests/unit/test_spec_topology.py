"""Topologies: which cables a shape has, what each cable's values are, and what is refused."""

from itertools import combinations
from pathlib import Path

import pytest

from emulator.errors import PortLimitError, SpecError
from emulator.spec.links import Flow, ResolvedLink, links, load_profiles
from emulator.spec.load import parse
from emulator.spec.topology import Topology

HEAD = "name: t\ndescription: d\n"
FOUR = HEAD + "nodes:\n  - {count: 4, prefix: n}\n"
EIGHT = HEAD + "nodes:\n  - {count: 8, prefix: n}\ngroups:\n  left: [n0..n3]\n  right: [n4..n7]\n"


def cables(text: str, *, ignore_ports: bool = False, force: bool = False) -> tuple[ResolvedLink, ...]:
    topology = parse(text, "x.yaml", Topology)
    return links(topology, load_profiles(topology), ignore_ports=ignore_ports, force=force)


def plane(text: str, name: str = "a", profile: str = "thunderbolt5-rdma") -> str:
    return f"planes:\n  {name}: {{profile: {profile}, {text}}}\n"


def pairs(text: str) -> list[tuple[str, str]]:
    return [(cable.a, cable.b) for cable in cables(text)]


def refusal(text: str, kind: type[SpecError] = SpecError) -> str:
    with pytest.raises(SpecError) as caught:
        cables(text)
    assert type(caught.value) is kind
    return str(caught.value)


def numbered(text: str) -> list[tuple[str, str]]:
    """`01 12` is n0-n1, n1-n2."""
    return [(f"n{pair[0]}", f"n{pair[1]}") for pair in text.split()]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("shape: full-mesh", "01 02 03 12 13 23"),
        ("shape: ring", "01 12 23 30"),
        ("shape: line", "01 12 23"),
        ("shape: star, centre: n1", "10 12 13"),
        ("shape: links, links: [{a: n0, b: n2}, {a: n1, b: n2}, {a: n3, b: n0}]", "02 12 30"),
        ("shape: ring, nodes: [n3, n0..n2]", "30 01 12 23"),
    ],
)
def test_shape(shape: str, expected: str) -> None:
    assert pairs(FOUR + plane(shape)) == numbered(expected)


def test_switch_is_a_node_after_its_plane() -> None:
    found = cables(FOUR + plane("shape: switch"))
    assert [(cable.a, cable.b, cable.b_kind) for cable in found] == [(f"n{i}", "sw-a", "switch") for i in range(4)]


def test_switch_in_each_group() -> None:
    text = (
        EIGHT
        + plane("shape: switch, groups: [left, right]")
        + "  b: {shape: line, profile: specialised, nodes: [n0, n4]}"
    )
    assert [cable.b for cable in cables(text)] == ["sw-a-left"] * 4 + ["sw-a-right"] * 4 + ["n4"]


def test_ring_of_two_is_one_cable() -> None:
    assert pairs(HEAD + "nodes: [{name: a}, {name: b}]\n" + plane("shape: ring")) == [("a", "b")]


def test_one_node_needs_no_cable() -> None:
    assert cables(HEAD + "nodes: [{name: a}]\n") == ()
    assert cables(HEAD + "nodes: [{name: a}]\n" + plane("shape: full-mesh")) == ()


def test_rails_join_counterparts_of_all_groups() -> None:
    text = HEAD + "nodes: [{count: 6, prefix: n}]\ngroups: {x: [n0, n1], y: [n2, n3], z: [n4, n5]}\n"
    rails = plane("shape: rails, groups: [x, y, z]") + "  b: {shape: line, profile: specialised, groups: [x]}"
    assert pairs(text + rails) == numbered("02 04 24 13 15 35 01")


def test_mesh_inside_groups() -> None:
    text = (
        EIGHT
        + plane("shape: full-mesh, groups: [left, right]")
        + "  b: {shape: rails, profile: specialised, groups: [left, right]}"
    )
    expected = [*combinations("0123", 2), *combinations("4567", 2), *zip("0123", "4567", strict=True)]
    assert pairs(text) == [(f"n{a}", f"n{b}") for a, b in expected]


def test_two_planes_may_join_the_same_pair() -> None:
    text = FOUR + plane("shape: line") + "  b: {shape: line, profile: specialised}"
    assert [cable.interconnect for cable in cables(text)] == ["thunderbolt5"] * 3 + ["specialised"] * 3


def flow(**changed: object) -> Flow:
    values: dict[str, object] = {
        "delay_ns": 40_000,
        "jitter_ns": 10_000,
        "distribution": "uniform",
        "correlation": 0.0,
        "loss": 0.0,
        "loss_correlation": 0.0,
        "duplicate": 0.0,
        "reorder": 0.0,
        "rate_bps": 80_000_000_000,
    }
    return Flow(**{**values, **changed})  # type: ignore[arg-type]


def test_cable_has_the_values_of_its_profile() -> None:
    first = cables(FOUR + plane("shape: line"))[0]
    assert (first.profile, first.mtu, first.host_cost_ns) == ("thunderbolt5-rdma", 9000, 0)
    assert first.a_to_b == first.b_to_a == flow()


def test_link_overrides_both_directions_then_each() -> None:
    link = (
        "{a: n0, b: n1, delay: 20us, loss: 1%, mtu: 1500B, host_cost_per_message: 2us, "
        "a_to_b: {delay: 50us..70us, rate: 8Gbit/s}, b_to_a: {jitter: 0ns, loss: 2%, duplicate: 0.5%, reorder: 3%}}"
    )
    first, second, _ = cables(FOUR + plane(f"shape: line, links: [{link}]"))
    assert (first.mtu, first.host_cost_ns) == (1500, 2000)
    assert first.a_to_b == flow(delay_ns=60_000, loss=0.01, rate_bps=8_000_000_000)
    assert first.b_to_a == flow(delay_ns=20_000, jitter_ns=0, loss=0.02, duplicate=0.005, reorder=0.03)
    assert second.a_to_b == flow()


def test_link_written_the_other_way_round() -> None:
    first, *_ = cables(
        FOUR + plane("shape: line, links: [{a: n1, b: n0, a_to_b: {delay: 20us}, b_to_a: {delay: 30us}}]")
    )
    assert (first.a, first.a_to_b.delay_ns, first.b_to_a.delay_ns) == ("n0", 30_000, 20_000)


def test_link_to_a_switch() -> None:
    first, second, *_ = cables(FOUR + plane("shape: switch, links: [{a: sw-a, b: n1, a_to_b: {delay: 20us}}]"))
    assert first.b_to_a.delay_ns == 40_000
    assert (second.a_to_b.delay_ns, second.b_to_a.delay_ns) == (40_000, 20_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            FOUR + plane("shape: line", profile="thunderbolt5-rmda"),
            "x.yaml:6:16: unknown profile `thunderbolt5-rmda`; did you mean `thunderbolt5-rdma`?",
        ),
        (FOUR + plane("shape: line", profile="./none.yaml"), "none.yaml: no such file"),
        (FOUR + "  - {name: n2}\n", "x.yaml:5:5: a node `n2` stands above already; write another name"),
        (FOUR + "  - {name: N2}\n", "a node `n2` stands above already"),
        (
            FOUR + plane("shape: links, links: [{a: n0, b: n0}]"),
            "x.yaml:6:68: joins n0 to itself; write another node, or remove the link",
        ),
        (
            FOUR + plane("shape: links, links: [{a: n0, b: n11}]"),
            "x.yaml:6:68: no node is called `n11`; did you mean `n1`?",
        ),
        (
            FOUR + plane("shape: links, links: [{a: n0, b: n1}, {a: n1, b: n0}]"),
            "have a link on this plane above already",
        ),
        (FOUR + plane("shape: ring, links: [{a: n0, b: n2}]"), "the ring `a` has no cable n0 to n2"),
        (FOUR + plane("shape: links, links: [{a: n0}]"), "x.yaml:6:57: `b` is missing"),
        (FOUR + plane("shape: links"), "the links are missing"),
        (FOUR + plane("shape: star"), "write `centre: NODE`"),
        (FOUR + plane("shape: star, centre: m"), "no node is called `m`"),
        (FOUR + plane("shape: ring, centre: n0"), "a ring has no centre"),
        (FOUR + plane("shape: rails"), "write `groups: [left, right]`"),
        (FOUR + plane("shape: line, groups: [lft]"), "no group is called `lft`"),
        (EIGHT + plane("shape: rails, groups: [left]"), "write at least two"),
        (EIGHT + plane("shape: ring, groups: [left, left]"), "n0 is in two of these groups"),
        (EIGHT + plane("shape: ring, groups: [left], nodes: [n0]"), "leave one of the two out"),
        (EIGHT + plane("shape: line, nodes: [left, n3]"), "`n3` stands in this list twice"),
        (EIGHT + plane("shape: line, nodes: [n7..n3]"), "'n7..n3' is not a range of names; write for example n0..n3"),
        (EIGHT + plane("shape: line, nodes: [n0..n8]"), "no node is called `n8`"),
        (FOUR + "groups: {n0: [n1]}", "`n0` is the name of a node"),
        (
            HEAD + "nodes: [{name: a}, {name: sw-a}]\n" + plane("shape: switch"),
            "its switch is called sw-a, like a node",
        ),
        (
            FOUR + plane("shape: switch, links: [{a: n0, b: sw-a, mtu: 1500B}]"),
            "a switch has one MTU for all its cables",
        ),
        (FOUR + plane("shape: line, nodes: [n0..n2]"), "x.yaml:4:5: n3 is joined to n0 by no cable"),
        (FOUR, "n1 is joined to n0 by no cable"),
        (
            FOUR + plane("shape: line, links: [{a: n0, b: n1, delay: 5us}]"),
            "the jitter of 10us is more than the delay of 5us",
        ),
        (FOUR + plane("shape: line, links: [{a: n0, b: n1, delay: 1us..2us, jitter: 1ns}]"), "leave jitter out"),
        (
            FOUR + plane("shape: line, links: [{a: n0, b: n1, delay: 0ns, jitter: 0ns, a_to_b: {reorder: 1%}}]"),
            "needs packets that wait",
        ),
        (
            HEAD + "nodes: [{count: 257, prefix: n}]\n" + plane("shape: line"),
            "are 257, more than 256; write fewer, or pass --force",
        ),
        (HEAD + "nodes: [{count: 200, prefix: n}]\n" + plane("shape: full-mesh"), "more than 10000 cables; write"),
        (HEAD + "nodes: [{count: 1000000000, prefix: n}]\n", "1000000000 is out of bounds; write at most 4096"),
        (HEAD + "nodes: [{count: 4096, prefix: n}, {count: 4096, prefix: m}]\n", "are more than 4096; write fewer"),
        (HEAD + "nodes: [{count: 0, prefix: n}]\n", "0 is out of bounds; write at least 1"),
        (HEAD + "nodes: []\n", "x.yaml:3:1: is empty; write at least one"),
        (HEAD + "nodes: [{count: 4}]\n", "write `name: n0`, or `count: 4` + `prefix: n`"),
        (HEAD + "nodes: [{name: a, count: 4}]\n", "write `name: n0`, or `count: 4` + `prefix: n`"),
        (HEAD + "nodes: [{name: a, cpu_speed: 0}]\n", "0 is out of bounds; write at least 0.001"),
        (HEAD + "nodes: [{name: a, cpu_speed: .inf}]\n", "'.inf' is not a number"),
        (HEAD + "nodes: [{name: a, memory: -1GB}]\n", "'-1GB' is negative"),
        (HEAD + "nodes: [{name: a, interconnects: {x: {ports: 3, usable_ports: 6}}}]\n", "is more than the 3 ports"),
    ],
)
def test_refusal(text: str, message: str) -> None:
    assert message in refusal(text)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "a/b",
        "-a",
        "a-",
        ".",
        "..",
        "a..b",
        "1a",
        "10.0.0.1",
        "0x7f",
        "ä",
        "a\nb",
        "a:b",
        "x" * 64,
        "x" * 200,
        "localhost",
    ],
)
def test_name_that_is_no_host_name(name: str) -> None:
    quoted = '"' + name.replace("\n", "\\n") + '"'
    message = refusal(HEAD + f"nodes:\n  - name: {quoted}\n")
    assert message.startswith("x.yaml:4:11: ")
    assert "write" in message
    assert len(message) < 300


@pytest.mark.parametrize("name", ["a", "node-1", "node_1", "node.1", "x" * 63])
def test_name_that_is_a_host_name(name: str) -> None:
    assert list(parse(HEAD + f"nodes:\n  - name: {name}\n", "x.yaml", Topology).members) == [name]


def test_prefix_is_checked_with_its_largest_number() -> None:
    assert "x.yaml:3:22: 'n-" not in refusal(HEAD + "nodes: [{count: 11, prefix: " + "x" * 62 + "}]\n")
    assert "of 64 characters" in refusal(HEAD + "nodes: [{count: 11, prefix: " + "x" * 62 + "}]\n")


PORTS = "interconnects: {thunderbolt5: {ports: 6, usable_ports: 3}}"


def test_too_many_ports_lists_the_cables() -> None:
    text = HEAD + f"nodes: [{{count: 5, prefix: n, {PORTS}}}]\n" + plane("shape: full-mesh")
    lines = refusal(text, PortLimitError).splitlines()
    assert len(lines) == 5
    assert lines[0] == (
        "x.yaml:3:47: n0 needs 4 thunderbolt5 ports, but can use only 3 of its 6; write a shape with fewer cables, or "
        "pass --ignore-ports; its cables: a:n0-n1, a:n0-n2, a:n0-n3, a:n0-n4"
    )
    assert len(cables(text, ignore_ports=True)) == 10


def test_ports_are_shared_by_planes() -> None:
    text = HEAD + f"nodes: [{{count: 4, prefix: n, {PORTS}}}]\n" + plane("shape: ring")
    assert len(cables(text)) == 4
    assert "n0 needs 4 thunderbolt5 ports" in refusal(
        text + "  b: {shape: ring, profile: thunderbolt5-tcp}", PortLimitError
    )


def test_node_without_the_port_of_a_plane() -> None:
    text = HEAD + f"nodes: [{{count: 2, prefix: n, {PORTS}}}]\n" + plane("shape: line", profile="specialised")
    assert "n0 has no specialised port; write it under interconnects" in refusal(text, PortLimitError)


def test_force_allows_more() -> None:
    assert len(cables(HEAD + "nodes: [{count: 300, prefix: n}]\n" + plane("shape: line"), force=True)) == 299


def test_profile_beside_the_topology_comes_first(tmp_path: Path) -> None:
    (tmp_path / "netem_profiles").mkdir()
    for path, delay in (("netem_profiles/specialised.yaml", "1us"), ("mine.yaml", "2us")):
        (tmp_path / path).write_text(
            f"name: {Path(path).stem}\ndescription: d\ninterconnect: x\nprotocol: p\ndelay: {delay}\nrate: 1Gbit/s\n"
            "source: s\n"
        )
    text = (
        HEAD
        + "nodes: [{count: 2, prefix: n}]\n"
        + plane("shape: line", profile="specialised")
        + ("  b: {shape: line, profile: mine.yaml}\n  c: {shape: line, profile: thunderbolt5-tcp}")
    )
    topology = parse(text, tmp_path / "t.yaml", Topology)
    assert [profile.delay_ns for profile in load_profiles(topology).values()] == [1000, 2000, 300_000]
