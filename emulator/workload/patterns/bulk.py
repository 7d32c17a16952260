"""Bulk: one transfer per token from the first node to the second, the next one back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emulator.workload.patterns.base import Pair, Pattern, Team, pair

if TYPE_CHECKING:
    from emulator.workload.node import Node


class Bulk(Pattern):
    def connections(self, team: Team) -> set[Pair]:
        return {pair(0, 1)}

    def compute_on_path_ns(self, team: Team, compute_ns: tuple[int, ...]) -> int:
        return sum(compute_ns[:2]) // 2

    def token(self, node: Node, number: int, now: int) -> int:
        if node.index > 1:
            return 0
        link = node.link(1 - node.index)
        if node.index == number % 2:
            node.send(link, node.compute(now))
            return 0
        return node.receive(link)
