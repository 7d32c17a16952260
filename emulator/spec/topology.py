"""A topology as a person writes it: nodes, and the planes of cables that join them. `links.py` lays out the cables."""

from collections.abc import Container, Iterable, Iterator
from itertools import chain, islice
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from emulator.spec.load import Document, Keys, Mistake, Mistakes, Part, suggest
from emulator.spec.names import NodeName, PlainName, expand, node_name
from emulator.spec.profile import Distribution, Text
from emulator.spec.units import Bandwidth, Bytes, Duration, Fraction, Mtu, Rate, Span

MAX_NODES = 4096
"""More than this no option allows."""

Names = Annotated[tuple[str, ...], Field(min_length=1)]
"""Nodes by name, range (`n0..n3`) or group."""


class Ports(Part):
    """What a node has of one interconnect."""

    ports: Annotated[int, Field(ge=0, le=1024)]
    usable_ports: Annotated[int, Field(ge=0, le=1024)] | None = None
    """What the driver lets through; left out: all."""

    @property
    def usable(self) -> int:
        return self.ports if self.usable_ports is None else self.usable_ports

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.usable > self.ports:
            raise Mistakes((("usable_ports",), f"is more than the {self.ports} ports; write at most {self.ports}"))
        return self


class NodeEntry(Part):
    """One named node, or `count` equal ones called `prefix` and a number from 0."""

    name: NodeName | None = None
    count: Annotated[int, Field(ge=1, le=MAX_NODES)] | None = None
    prefix: str | None = None
    memory: Bytes | None = None
    memory_bandwidth: Bandwidth | None = None
    cpu_speed: Annotated[float, Field(ge=0.001, le=1000, allow_inf_nan=False)] | None = None
    """Speed of real programs on the virtual clock, in multiples of this host's; left out: computing is free."""
    interconnects: dict[PlainName, Ports] = Field(default_factory=dict)
    """Ports by interconnect; left out: as many as there are cables."""

    @property
    def names(self) -> tuple[str, ...]:
        if self.name is not None:
            return (self.name,)
        return tuple(f"{self.prefix}{index}" for index in range(self.count or 0))

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.name is not None, self.count is not None, self.prefix is not None) not in (
            (True, False, False),
            (False, True, True),
        ):
            raise ValueError(
                "a node has a name, or a count and a prefix; write `name: n0`, or `count: 4` + `prefix: n`"
            )
        if self.prefix is not None:
            try:
                node_name(self.names[-1])
            except ValueError as error:
                raise Mistakes((("prefix",), str(error))) from None
        return self


class Direction(Part):
    """What one direction of a cable has other than its profile; left out: as the profile."""

    delay: Span | None = None
    """A range sets the jitter, too."""
    jitter: Duration | None = None
    distribution: Distribution | None = None
    correlation: Fraction | None = None
    loss: Fraction | None = None
    loss_correlation: Fraction | None = None
    duplicate: Fraction | None = None
    reorder: Fraction | None = None
    rate: Rate | None = None


class Link(Direction):
    """One cable, with what it has other than its profile: in both directions, and then in each."""

    a: str
    b: str
    mtu: Mtu | None = None
    host_cost_per_message: Duration | None = None
    a_to_b: Direction = Field(default_factory=Direction)
    b_to_a: Direction = Field(default_factory=Direction)


class Plane(Part):
    """Cables of one profile, laid out in one shape."""

    shape: Literal["full-mesh", "ring", "line", "star", "switch", "rails", "links"]
    profile: Text
    """A name, or a path relative to the topology file."""
    nodes: Names | None = None
    """Nodes it joins; left out, without groups: all."""
    groups: Names | None = None
    """The shape is laid out inside each of these groups; rails join each group's first members, and so on."""
    centre: str | None = None
    """Star: the node that has a cable to each other one."""
    links: tuple[Link, ...] = ()
    """Shape links: the cables. Other shapes: what single cables have other than the profile."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        found: list[Mistake] = []
        if self.nodes is not None and self.groups is not None:
            found.append((("groups",), "a plane joins nodes or groups; leave one of the two out"))
        if self.shape == "rails" and self.groups is None:
            found.append((("shape",), "rails join groups; write `groups: [left, right]`"))
        if self.shape == "star" and self.centre is None:
            found.append((("shape",), "a star has a centre; write `centre: NODE`"))
        if self.shape == "star" and self.groups is not None:
            found.append((("groups",), "a star has one centre; write one plane, with `nodes`, for each group"))
        if self.shape != "star" and self.centre is not None:
            found.append((("centre",), f"a {self.shape} has no centre; leave it out, or write `shape: star`"))
        if self.shape == "links":
            if not self.links:
                found.append((("shape",), "the links are missing; write `links: [{a: n0, b: n1}]`"))
            if self.nodes is not None or self.groups is not None:
                key = "nodes" if self.groups is None else "groups"
                found.append(((key,), "the links say which nodes they join; leave this out"))
        if found:
            raise Mistakes(*found)
        return self


class Topology(Document):
    """A cluster as a person writes it."""

    name: PlainName
    description: Text
    nodes: Annotated[tuple[NodeEntry, ...], Field(min_length=1)]
    groups: dict[PlainName, Names] = Field(default_factory=dict)
    """Groups of nodes, by name or range."""
    planes: dict[PlainName, Plane] = Field(default_factory=dict)
    ipv6: bool = False

    @property
    def members(self) -> dict[str, NodeEntry]:
        """Every node's name with its entry, in order."""
        return {name: entry for entry in self.nodes for name in entry.names}

    def group(self, name: str) -> tuple[str, ...]:
        """The nodes of a group, in order."""
        return tuple(node for item in self.groups[name] for node in expand(item))

    def pick(self, names: Iterable[str]) -> tuple[str, ...]:
        """The nodes that names, ranges and groups stand for, in order."""
        return tuple(node for name in names for node in (self.group(name) if name in self.groups else expand(name)))

    def plane_nodes(self, plane: Plane) -> tuple[tuple[str, ...], ...]:
        """The nodes of a plane: one tuple for each group, or one of all its nodes."""
        if plane.groups is not None:
            return tuple(self.group(name) for name in plane.groups)
        if plane.shape == "links":
            return (tuple(dict.fromkeys(end for link in plane.links for end in (link.a, link.b))),)
        nodes = tuple(self.members) if plane.nodes is None else self.pick(plane.nodes)
        return (nodes if plane.centre is None or plane.centre in nodes else (plane.centre, *nodes),)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if sum(entry.count or 1 for entry in self.nodes) > MAX_NODES:
            raise Mistakes((("nodes",), f"are more than {MAX_NODES}; write fewer"))
        # Planes are read with the groups, so groups have to be right first.
        found = [*islice(chain(self._duplicates(), self._groups()), 100)] or [*islice(self._planes(), 100)]
        if found:
            raise Mistakes(*found)
        return self

    def _duplicates(self) -> Iterator[Mistake]:
        seen: dict[str, str] = {}
        for index, entry in enumerate(self.nodes):
            for name in entry.names:
                # Host names are compared without case.
                if (first := seen.setdefault(name.lower(), f"{name} {index}")) != f"{name} {index}":
                    yield ("nodes", index), f"a node `{first.split()[0]}` stands above already; write another name"

    def _groups(self) -> Iterator[Mistake]:
        members = self.members
        for group, items in self.groups.items():
            if group in members:
                yield ("groups", group), f"`{group}` is the name of a node; write another one for the group"
            yield from self._unknown(("groups", group), items, (), members)

    def _planes(self) -> Iterator[Mistake]:
        members = self.members
        for name, plane in self.planes.items():
            path = ("planes", name)
            yield from self._unknown((*path, "nodes"), plane.nodes or (), self.groups, members)
            for index, group in enumerate(plane.groups or ()):
                if group not in self.groups:
                    yield (*path, "groups", index), f"no group is called `{group[:63]}`; {suggest(group, self.groups)}"
            if plane.centre is not None and plane.centre not in members:
                yield (*path, "centre"), f"no node is called `{plane.centre[:63]}`; {suggest(plane.centre, members)}"

    def _unknown(
        self, path: Keys, items: Iterable[str], groups: Container[str], members: Iterable[str]
    ) -> Iterator[Mistake]:
        """Mistakes in a list of nodes: unknown ones, and ones that stand there twice."""
        seen: set[str] = set()
        for index, item in enumerate(items):
            try:
                names = self.group(item) if item in groups else expand(item)
            except ValueError as error:
                yield (*path, index), str(error)
                continue
            for name in names:
                if name not in members:
                    yield (*path, index), f"no node is called `{name[:63]}`; {suggest(name, members)}"
                elif name in seen:
                    yield (*path, index), f"`{name}` stands in this list twice; remove one of the two"
                seen.add(name)
