"""All-reduce in one phase: each node sends its whole vector to every other and adds up what it receives."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Annotated

import msgspec

from emulator.workload.patterns.base import Pair, Pattern, Team, pair
from emulator.workload.vector import check_size, from_bytes, to_bytes

if TYPE_CHECKING:
    from emulator.workload.node import Link, Node


class AllReduceMesh(Pattern):
    times: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    """All-reduces per token; the compute time is split evenly before them."""

    def connections(self, team: Team) -> set[Pair]:
        check_size(team.payload_bytes, len(team.nodes))
        return {pair(a, b) for a, b in combinations(range(len(team.nodes)), 2)}

    def compute_on_path_ns(self, team: Team, compute_ns: tuple[int, ...]) -> int:
        return max(compute_ns) // self.times * self.times

    def ahead_bytes(self, team: Team) -> int:
        return team.payload_bytes

    def token(self, node: Node, number: int, now: int) -> int:
        links = [node.link(peer) for peer in range(node.count) if peer != node.index]
        # Each node starts with its successor, so that no node is everyone's first.
        links = links[node.index :] + links[: node.index]
        for turn in range(number * self.times, (number + 1) * self.times):
            now = node.compute(now, parts=self.times)
            total = reduce_over(node, links, node.vectors.own(turn), node.payload_bytes)
            node.vectors.check(total, turn)
            now = node.clock()
        return now


def reduce_over(node: Node, links: list[Link], vector: int, size: int) -> int:
    """Exchanges vectors of `size` bytes with the nodes behind `links`; returns the sum of theirs and `vector`."""
    data = to_bytes(vector, size)
    for link in links:
        node.send_data(link, data, node.clock())
    for received in node.receive_data(links, size):
        vector += from_bytes(received)
    return vector
