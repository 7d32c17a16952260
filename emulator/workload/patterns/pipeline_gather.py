"""Pipeline as exo runs it: the state goes through all nodes in order, then one all-gather hands every node's to all, of
which each keeps the last one's and draws the next token from it. Source: github.com/exo-explore/exo, src/exo/worker.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from emulator.workload.patterns.base import Pair, Pattern, Team, pair

if TYPE_CHECKING:
    from emulator.workload.node import Node


class PipelineGather(Pattern):
    def connections(self, team: Team) -> set[Pair]:
        return {pair(a, b) for a, b in combinations(range(len(team.nodes)), 2)}

    def compute_on_path_ns(self, team: Team, compute_ns: tuple[int, ...]) -> int:
        return sum(compute_ns)

    def ahead_bytes(self, team: Team) -> int:
        return 2 * team.payload_bytes

    def token(self, node: Node, number: int, now: int) -> int:
        size = node.payload_bytes
        if node.index > 0:
            now = node.receive_sized([(node.previous, size)])
        now = node.compute(now)
        if node.index < node.count - 1:
            node.send_sized([(node.next, size)], now)
        others = [(node.link((node.index + step) % node.count), size) for step in range(1, node.count)]
        node.send_sized(others, node.clock())
        return node.receive_sized(others)
