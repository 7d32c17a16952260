"""Aggregate, on a dual plane: all-reduce within each group on one plane, across the groups on the other, and back.

The nodes of a group that are on the second plane are its aggregators. The i-th of them exchanges the i-th piece of its
group's sum with the i-th aggregators of all other groups, adds theirs, and hands the total of that piece back to its
group.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from emulator.workload.patterns.all_reduce_mesh import reduce_over
from emulator.workload.patterns.base import Pair, Pattern, Team, pair
from emulator.workload.vector import check_size, from_bytes, join, split, to_bytes

if TYPE_CHECKING:
    from emulator.workload.node import Node


class Aggregate(Pattern):
    within: str = ""
    """The plane within groups; the topology's first if not given."""
    across: str = ""
    """The plane between aggregators; the topology's second if not given."""

    def planes(self, team: Team) -> tuple[str, str]:
        """`within` and `across`. Raises ValueError where there are no two planes of these names."""
        for name in (self.within, self.across):
            if name and name not in team.planes:
                raise ValueError(f"no plane is called `{name}`; it has {', '.join(team.planes)}")
        if len(team.planes) < 2 or len(team.groups) < 2:
            raise ValueError(
                f"aggregate needs two planes and two groups, and there are {len(team.planes)} and {len(team.groups)}; "
                "take a topology such as dual-plane-8"
            )
        names = list(team.planes)
        return self.within or names[0], self.across or names[1]

    def aggregators(self, team: Team) -> list[tuple[int, ...]]:
        """Of each group. Raises ValueError unless each has the same number of them, and at least one."""
        _, across = self.planes(team)
        found = [tuple(node for node in group if node in team.planes[across]) for group in team.groups.values()]
        if len({len(nodes) for nodes in found}) != 1 or not found[0]:
            counts = ", ".join(f"{name} {len(nodes)}" for name, nodes in zip(team.groups, found, strict=True))
            raise ValueError(f"each group needs the same number of nodes on plane `{across}`, and they have: {counts}")
        return found

    def connections(self, team: Team) -> set[Pair]:
        within, across = self.planes(team)
        aggregators = self.aggregators(team)
        check_size(team.payload_bytes, len(team.nodes), pieces=len(aggregators[0]))
        grouped = [node for group in team.groups.values() for node in group]
        if sorted(grouped) != list(range(len(team.nodes))):
            raise ValueError("each node has to be in exactly one group; name the nodes that are with `nodes`")
        inside = {pair(a, b, within) for group in team.groups.values() for a, b in combinations(group, 2)}
        return inside | {
            pair(a, b, across) for peers in zip(*aggregators, strict=True) for a, b in combinations(peers, 2)
        }

    def compute_on_path_ns(self, team: Team, compute_ns: tuple[int, ...]) -> int:
        return max(compute_ns)

    def ahead_bytes(self, team: Team) -> int:
        return team.payload_bytes

    def token(self, node: Node, number: int, now: int) -> int:
        within, across = self.planes(node.team)
        aggregators = self.aggregators(node.team)
        here = next(i for i, group in enumerate(node.team.groups.values()) if node.index in group)
        group = list(node.team.groups.values())[here]
        mates = {peer: node.link(peer, within) for peer in group if peer != node.index}

        node.compute(now)
        total = reduce_over(node, list(mates.values()), node.vectors.own(number), node.payload_bytes)
        pieces, sizes = split(total, node.payload_bytes, len(aggregators[0]))
        for i, aggregator in enumerate(aggregators[here]):
            if aggregator == node.index:
                peers = [node.link(nodes[i], across) for nodes in aggregators if nodes[i] != node.index]
                pieces[i] = reduce_over(node, peers, pieces[i], sizes[i])
                data = to_bytes(pieces[i], sizes[i])
                for link in mates.values():
                    node.send_data(link, data, node.clock())
        for i, aggregator in enumerate(aggregators[here]):
            if aggregator != node.index:
                (received,) = node.receive_data([mates[aggregator]], sizes[i])
                pieces[i] = from_bytes(received)
        node.vectors.check(join(pieces, sizes), number)
        return node.clock()
