"""What cables a topology has: each plane's shape laid out, and each cable's values after profile and overrides."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, pairwise
from typing import Literal

from emulator.errors import SpecError
from emulator.spec.check import check_joined, check_ports
from emulator.spec.load import Mistake, Mistakes, suggest
from emulator.spec.profile import Distribution, Profile, check_direction, load_profile
from emulator.spec.topology import Direction, Link, Plane, Topology
from emulator.spec.units import Span

MAX_NODES = 256
MAX_CABLES = 10_000
"""More nodes or cables than these need `force`."""
MAX_FORCED_CABLES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One direction of a cable. Shares are 0 to 1."""

    delay_ns: int
    jitter_ns: int
    distribution: Distribution
    correlation: float
    loss: float
    loss_correlation: float
    duplicate: float
    reorder: float
    rate_bps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedLink:
    """One cable, with all its values."""

    plane: str
    a: str
    """Always a node."""
    b: str
    b_kind: Literal["node", "switch"]
    profile: str
    """The profile's own name."""
    interconnect: str
    mtu: int
    host_cost_ns: int
    a_to_b: Flow
    b_to_a: Flow


def load_profiles(topology: Topology) -> dict[str, Profile]:
    """The profile that each plane names, by plane. Raises SpecError that lists all that cannot be found."""
    profiles: dict[str, Profile] = {}
    mistakes: list[Mistake] = []
    for name, plane in topology.planes.items():
        try:
            profiles[name] = load_profile(plane.profile, topology.file)
        except SpecError as error:
            mistakes.append((("planes", name, "profile"), str(error)))
    if mistakes:
        raise topology.error(mistakes)
    return profiles


def links(
    topology: Topology, profiles: Mapping[str, Profile], *, ignore_ports: bool = False, force: bool = False
) -> tuple[ResolvedLink, ...]:
    """Every cable of the topology, planes in the order of the file, cables in the order of their nodes.

    `profiles` are by plane, as `load_profiles` returns them. Raises SpecError, and PortLimitError where a node has more
    cables than usable ports, unless `ignore_ports`; `force` allows more than 256 nodes and 10,000 cables.
    """
    count = len(topology.members)
    if count > MAX_NODES and not force:
        raise topology.error([(("nodes",), f"are {count}, more than {MAX_NODES}; write fewer, or pass --force")])
    limit = MAX_FORCED_CABLES if force else MAX_CABLES
    mistakes: list[Mistake] = []
    found: list[ResolvedLink] = []
    for name, plane in topology.planes.items():
        found += islice(_plane_links(topology, name, plane, profiles[name], mistakes), limit + 1 - len(found))
        if len(found) > limit:
            advice = "write fewer nodes or another shape" + ("" if force else ", or pass --force")
            raise topology.error([(("planes", name), f"makes them more than {limit} cables; {advice}")])
    if mistakes:
        raise topology.error(mistakes)
    check_joined(topology, [(link.a, link.b) for link in found])
    if not ignore_ports:
        check_ports(
            topology, [(link.interconnect, f"{link.plane}:{link.a}-{link.b}", (link.a, link.b)) for link in found]
        )
    return tuple(found)


def switch_name(plane: str, group: str | None = None) -> str:
    """A switch is called after its plane, and its group if each has one."""
    return f"sw-{plane}" + (f"-{group}" if group else "")


def _plane_links(
    topology: Topology, name: str, plane: Plane, profile: Profile, mistakes: list[Mistake]
) -> Iterator[ResolvedLink]:
    """The cables of one plane; what is wrong with it goes to `mistakes`."""
    path = ("planes", name)
    groups = topology.plane_nodes(plane)
    if wrong := _wrong_groups(topology, name, plane, groups):
        mistakes.append(wrong)
        return
    switches = _switches(name, plane) if plane.shape == "switch" else ()
    ends = list(islice(_ends(plane, groups, switches), MAX_FORCED_CABLES + 1))
    known = {*topology.members, *switches}
    cables = {frozenset(pair) for pair in ends}
    written: dict[frozenset[str], tuple[int, Link]] = {}
    for index, link in enumerate(plane.links):
        pair = frozenset((link.a, link.b))
        if fault := _wrong_link(link, known, name, plane, cables, written):
            mistakes.append(((*path, "links", index, fault[0]), fault[1]))
        written.setdefault(pair, (index, link))
    if any(keys[:2] == path for keys, _ in mistakes):
        return
    for a, b in ends:
        index, link = written.get(frozenset((a, b)), (0, Link(a=a, b=b)))
        there, back = (link.a_to_b, link.b_to_a) if link.a == a else (link.b_to_a, link.a_to_b)
        try:
            flows = _flow(profile, link, there), _flow(profile, link, back)
        except Mistakes as error:
            mistakes += [((*path, "links", index, *keys), message) for keys, message in error.mistakes]
            continue
        cost = link.host_cost_per_message
        yield ResolvedLink(
            plane=name,
            a=a,
            b=b,
            b_kind="switch" if b in switches else "node",
            profile=profile.name,
            interconnect=profile.interconnect,
            mtu=profile.mtu if link.mtu is None else link.mtu,
            host_cost_ns=profile.host_cost_per_message if cost is None else cost,
            a_to_b=flows[0],
            b_to_a=flows[1],
        )


def _switches(name: str, plane: Plane) -> tuple[str, ...]:
    return (switch_name(name),) if plane.groups is None else tuple(switch_name(name, group) for group in plane.groups)


def _ends(plane: Plane, groups: Sequence[Sequence[str]], switches: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Both ends of each cable of a plane's shape."""
    match plane.shape:
        case "links":
            yield from ((link.a, link.b) for link in plane.links)
        case "rails":
            for counterparts in zip(*groups, strict=True):
                yield from combinations(counterparts, 2)
        case "switch":
            for nodes, switch in zip(groups, switches, strict=True):
                yield from ((node, switch) for node in nodes)
        case "full-mesh":
            for nodes in groups:
                yield from combinations(nodes, 2)
        case "star":
            yield from ((str(plane.centre), node) for nodes in groups for node in nodes if node != plane.centre)
        case "line" | "ring":
            for nodes in groups:
                yield from pairwise(nodes)
                # A ring of two would be the same cable twice.
                if plane.shape == "ring" and len(nodes) > 2:
                    yield nodes[-1], nodes[0]


def _wrong_groups(topology: Topology, name: str, plane: Plane, groups: Sequence[Sequence[str]]) -> Mistake | None:
    path = ("planes", name, "groups")
    if plane.shape == "rails" and len(groups) < 2:
        return path, "rails join groups; write at least two"
    if plane.shape == "rails" and len({len(nodes) for nodes in groups}) > 1:
        sizes = ", ".join(f"{group} has {len(nodes)}" for group, nodes in zip(plane.groups or (), groups, strict=True))
        return path, f"rails join groups of one size, but {sizes}; write groups with as many nodes each"
    seen: set[str] = set()
    for nodes in groups:
        if twice := seen.intersection(nodes):
            return path, f"{min(twice)} is in two of these groups; write groups without common nodes"
        seen.update(nodes)
    if plane.shape == "switch" and (clash := set(_switches(name, plane)) & set(topology.members)):
        return ("planes", name), f"its switch is called {min(clash)}, like a node; rename the node or the plane"
    return None


def _wrong_link(
    link: Link,
    known: Collection[str],
    name: str,
    plane: Plane,
    cables: Collection[frozenset[str]],
    written: Mapping[frozenset[str], tuple[int, Link]],
) -> tuple[str, str] | None:
    """The key of a link that is wrong, and why."""
    for key, end in (("a", link.a), ("b", link.b)):
        if end not in known:
            return key, f"no node is called `{end[:63]}`; {suggest(end, known)}"
    if link.a == link.b:
        return "b", f"joins {link.a} to itself; write another node, or remove the link"
    pair = frozenset((link.a, link.b))
    if pair in written:
        return "a", f"{link.a} and {link.b} have a link on this plane above already; remove one of the two"
    if pair not in cables:
        return "a", f"the {plane.shape} `{name}` has no cable {link.a} to {link.b}; write one that it has"
    if link.mtu is not None and plane.shape == "switch":
        return "mtu", "a switch has one MTU for all its cables; leave it out, or choose a profile that has this MTU"
    return None


def _flow(profile: Profile, link: Link, direction: Direction) -> Flow:
    """A direction's values: the profile's, then what the link has other, then the direction. Raises Mistakes."""
    delay, jitter = profile.delay_ns, profile.jitter_ns
    values = {key: getattr(profile, key) for key in _SAME_KEYS}
    for layer in (link, direction):
        if layer.delay is not None:
            check_direction(layer.delay, layer.jitter or 0, 0)
            delay, jitter = layer.delay.middle_ns, layer.delay.half_width_ns or jitter
        jitter = jitter if layer.jitter is None else layer.jitter
        values |= {key: value for key in _SAME_KEYS if (value := getattr(layer, key)) is not None}
    check_direction(Span(delay, 0), jitter, values["reorder"])
    return Flow(
        delay_ns=delay,
        jitter_ns=jitter,
        rate_bps=values.pop("rate"),
        **values,
    )


_SAME_KEYS = ("distribution", "correlation", "loss", "loss_correlation", "duplicate", "reorder", "rate")
