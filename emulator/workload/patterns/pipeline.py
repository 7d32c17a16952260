"""Pipeline: each node is a stage; a token goes through all of them in order and back to the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.workload.patterns.base import Pair, Pattern, Team, pair

if TYPE_CHECKING:
    from emulator.workload.node import Node


class Pipeline(Pattern):
    def connections(self, team: Team) -> set[Pair]:
        count = len(team.nodes)
        return {pair(i, (i + 1) % count) for i in range(count)}

    def compute_on_path_ns(self, team: Team, compute_ns: int) -> int:
        return len(team.nodes) * compute_ns

    def token(self, node: Node, number: int, now: int) -> int:
        if node.index == 0:
            now = node.compute(now)
            node.send(node.next, now)
            return node.receive(node.previous)
        now = node.compute(node.receive(node.previous))
        node.send(node.next, now)
        return 0
