"""All-reduce by ring: a reduce-scatter, then an all-gather, of 2(n - 1) steps with pieces of 1/n of the vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from emulator.workload.patterns.base import Pair, Pattern, Team, pair
from emulator.workload.vector import ELEMENT_BYTES, check_size, from_bytes, join, split, to_bytes

if TYPE_CHECKING:
    from emulator.workload.node import Node


class AllReduceRing(Pattern):
    times: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    """All-reduces per token; the compute time is split evenly before them."""

    def connections(self, team: Team) -> set[Pair]:
        count = len(team.nodes)
        check_size(team.payload_bytes, count, pieces=count)
        return {pair(i, (i + 1) % count) for i in range(count)}

    def compute_on_path_ns(self, team: Team, compute_ns: tuple[int, ...]) -> int:
        return max(compute_ns) // self.times * self.times

    def ahead_bytes(self, team: Team) -> int:
        return team.payload_bytes // len(team.nodes) + ELEMENT_BYTES

    def token(self, node: Node, number: int, now: int) -> int:
        for turn in range(number * self.times, (number + 1) * self.times):
            now = node.compute(now, parts=self.times)
            total = reduce_round(node, node.vectors.own(turn), node.payload_bytes, now)
            node.vectors.check(total, turn)
            now = node.now
        return now


def reduce_round(node: Node, vector: int, size: int, now: int) -> int:
    """Reduces vectors of `size` bytes round the ring of all nodes, from `now` on; returns the sum of all. `node.now` is
    then when the last piece came."""
    count = node.count
    pieces, sizes = split(vector, size, count)
    for step in range(2 * (count - 1)):
        out, into = (node.index - step) % count, (node.index - step - 1) % count
        node.send_data(node.next, to_bytes(pieces[out], sizes[out]), now)
        (received,) = node.receive_data([node.previous], sizes[into])
        now = node.now
        # The first half sums the pieces up, the second hands the sums round.
        pieces[into] = from_bytes(received) + (pieces[into] if step < count - 1 else 0)
    return join(pieces, sizes)
