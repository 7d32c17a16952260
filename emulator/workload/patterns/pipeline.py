"""Pipeline: each node is a stage; a token goes through all of them in order and back to the first.

With micro-batches, a token is one step of a batch cut in so many parts, which follow one another through the stages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from emulator.workload.patterns.base import Pair, Pattern, Team, pair

if TYPE_CHECKING:
    from emulator.workload.node import Node


class Pipeline(Pattern):
    micro_batches: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    """Messages from stage to stage per token, each of the payload; a stage's compute time is split evenly over them."""

    def connections(self, team: Team) -> set[Pair]:
        count = len(team.nodes)
        return {pair(i, (i + 1) % count) for i in range(count)}

    def compute_on_path_ns(self, team: Team, compute_ns: tuple[int, ...]) -> int:
        # The first micro-batch passes all stages; the others follow at the pace of the slowest.
        each = [time // self.micro_batches for time in compute_ns]
        return sum(each) + (self.micro_batches - 1) * max(each)

    def ahead_bytes(self, team: Team) -> int:
        # The last stage hands back what the first takes only when it has sent everything.
        return team.payload_bytes * self.micro_batches if self.micro_batches > 1 else 0

    def token(self, node: Node, number: int, now: int) -> int:
        for _ in range(self.micro_batches):
            if node.index:
                now = node.receive(node.previous)
            now = node.compute(now, parts=self.micro_batches)
            node.send(node.next, now)
        if node.index:
            return 0
        for _ in range(self.micro_batches):
            now = node.receive(node.previous)
        return now
