"""Hierarchical all-reduce, on a dual plane: a reduce-scatter within each group on one plane, an all-reduce of each
piece across the groups on the other, and an all-gather within the groups.

`aggregate` sends whole vectors within a group; here each node sends to an aggregator only the piece that it sums up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from emulator.workload.patterns.aggregate import Aggregate
from emulator.workload.patterns.all_reduce_mesh import reduce_over
from emulator.workload.patterns.base import Team
from emulator.workload.vector import from_bytes, join, split, to_bytes

if TYPE_CHECKING:
    from emulator.workload.node import Node


class Hierarchical(Aggregate):
    times: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    """All-reduces per token; the compute time is split evenly before them."""

    def compute_on_path_ns(self, team: Team, compute_ns: tuple[int, ...]) -> int:
        return max(compute_ns) // self.times * self.times

    def token(self, node: Node, number: int, now: int) -> int:
        for turn in range(number * self.times, (number + 1) * self.times):
            now = node.compute(now, parts=self.times)
            total = self._reduce(node, node.vectors.own(turn))
            node.vectors.check(total, turn)
            now = node.clock()
        return now

    def _reduce(self, node: Node, vector: int) -> int:
        within, across = self.planes(node.team)
        here = next(i for i, group in enumerate(node.team.groups.values()) if node.index in group)
        group = list(node.team.groups.values())[here]
        aggregators = self.aggregators(node.team)
        mine = aggregators[here]
        mates = [node.link(peer, within) for peer in group if peer != node.index]
        others = [(i, node.link(peer, within)) for i, peer in enumerate(mine) if peer != node.index]
        pieces, sizes = split(vector, node.payload_bytes, len(mine))

        for i, link in others:
            node.send_data(link, to_bytes(pieces[i], sizes[i]), node.clock())
        if node.index in mine:
            own = mine.index(node.index)
            for received in node.receive_data(mates, sizes[own]) if mates else ():
                pieces[own] += from_bytes(received)
            peers = [node.link(nodes[own], across) for nodes in aggregators if nodes[own] != node.index]
            pieces[own] = reduce_over(node, peers, pieces[own], sizes[own])
            data = to_bytes(pieces[own], sizes[own])
            for link in mates:
                node.send_data(link, data, node.clock())
        for link, received in node.receive_each([(link, sizes[i]) for i, link in others]) if others else ():
            pieces[mine.index(link.peer)] = from_bytes(received)
        return join(pieces, sizes)
