"""Whether a topology's cables make one cluster, and whether its nodes have ports for them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from emulator.errors import PortLimitError
from emulator.spec.load import Mistake
from emulator.spec.topology import Topology


def check_joined(topology: Topology, cables: Iterable[tuple[str, str]]) -> None:
    """Raises SpecError where nodes cannot be reached from the first one."""
    peers = defaultdict(list)
    for a, b in cables:
        peers[a].append(b)
        peers[b].append(a)
    first, *others = topology.members
    mistakes: list[Mistake] = []
    reached = _reached(first, peers)
    for node in others:
        if node not in reached:
            island = _reached(node, peers)
            reached |= island
            names = [name for name in topology.members if name in island]
            shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            verb = "is" if len(names) == 1 else "are"
            message = f"{shown} {verb} joined to {first} by no cable; write a plane that does so, or remove the node"
            mistakes.append((_entry_path(topology, node), message))
    if mistakes:
        raise topology.error(mistakes)


def _reached(start: str, peers: Mapping[str, Sequence[str]]) -> set[str]:
    reached, waiting = {start}, [start]
    while waiting:
        new = [peer for peer in peers.get(waiting.pop(), ()) if peer not in reached]
        reached.update(new)
        waiting += new
    return reached


def _entry_path(topology: Topology, node: str) -> tuple[str | int, ...]:
    return "nodes", next(index for index, entry in enumerate(topology.nodes) if node in entry.names)


def check_ports(topology: Topology, cables: Iterable[tuple[str, str, tuple[str, str]]]) -> None:
    """Raises PortLimitError that lists the cables of each node that has more than usable ports.

    `cables`: interconnect, name and ends of each.
    """
    names_of: dict[tuple[str, str], list[str]] = defaultdict(list)
    for interconnect, name, ends in cables:
        for end in ends:
            names_of[end, interconnect].append(name)
    mistakes: list[Mistake] = []
    members = topology.members
    for (node, interconnect), names in names_of.items():
        entry = members.get(node)
        if entry is None or not entry.interconnects:
            continue
        has = entry.interconnects.get(interconnect)
        if has is None:
            wrong = f"has no {interconnect} port; write it under interconnects"
        elif len(names) > has.usable:
            usable = f"can use only {has.usable} of its {has.ports}" if has.usable < has.ports else f"has {has.ports}"
            wrong = f"needs {len(names)} {interconnect} ports, but {usable}; write a shape with fewer cables"
        else:
            continue
        path = (*_entry_path(topology, node), "interconnects", interconnect)
        mistakes.append((path, f"{node} {wrong}, or pass --ignore-ports; its cables: {', '.join(names)}"))
    if mistakes:
        raise topology.error(mistakes, PortLimitError)
