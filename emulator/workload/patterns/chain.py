"""Chain: `exchanges` messages per token, each from a node to the next; the next token starts where this one ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from emulator.workload.patterns.base import Pair, Pattern, Team, pair

if TYPE_CHECKING:
    from emulator.workload.node import Node


class Chain(Pattern):
    exchanges: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 3
    """Messages per token: 3 over 4 nodes visit each once. The first node and each that a message reaches compute."""

    def connections(self, team: Team) -> set[Pair]:
        count = len(team.nodes)
        return {pair(i, (i + 1) % count) for i in range(count)}

    def compute_on_path_ns(self, team: Team, compute_ns: tuple[int, ...]) -> int:
        return (self.exchanges + 1) * sum(compute_ns) // len(compute_ns)

    def token(self, node: Node, number: int, now: int) -> int:
        first = number * self.exchanges
        for step in range((node.index - first) % node.count, self.exchanges + 1, node.count):
            if step > 0:
                now = node.receive(node.previous)
            now = node.compute(now)
            if step < self.exchanges:
                node.send(node.next, now)
            else:
                return now
        return 0
