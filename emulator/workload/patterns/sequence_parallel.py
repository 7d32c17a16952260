"""Sequence parallelism in prefill, as ring attention: each node holds a part of the prompt, and the keys and values of
all parts go round the ring in each layer, while each node computes on those it has. A token is one prompt.

`payload` is what one token of the prompt has in one layer: its keys and values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from emulator.workload.patterns.base import Pair, Pattern, Team, pair

if TYPE_CHECKING:
    from emulator.workload.node import Node


class SequenceParallel(Pattern):
    layers: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    prompt_tokens: Annotated[int, msgspec.Meta(ge=1, le=100_000_000)] = 1024
    """Spread evenly over the nodes."""

    def block_bytes(self, team: Team) -> int:
        """Keys and values of one node's part of the prompt, in one layer."""
        return self.prompt_tokens // len(team.nodes) * team.payload_bytes

    def connections(self, team: Team) -> set[Pair]:
        count = len(team.nodes)
        if self.prompt_tokens % count:
            raise ValueError(
                f"{self.prompt_tokens} tokens cannot be spread evenly over {count} nodes; write a multiple of {count}"
            )
        return {pair(i, (i + 1) % count) for i in range(count)}

    def compute_on_path_ns(self, team: Team, compute_ns: tuple[int, ...]) -> int:
        blocks = self.layers * len(team.nodes)
        return max(compute_ns) // blocks * blocks

    def ahead_bytes(self, team: Team) -> int:
        return self.block_bytes(team)

    def token(self, node: Node, number: int, now: int) -> int:
        block = self.block_bytes(node.team)
        share = node.compute_ns // (self.layers * node.count)
        for _ in range(self.layers):
            computed = now
            for step in range(node.count):
                # The block at hand goes on to the next node while this one computes on it.
                if step < node.count - 1:
                    node.send_sized([(node.next, block)], now)
                computed = node.compute_beside(max(computed, now), share)
                if step < node.count - 1:
                    now = node.receive_sized([(node.previous, block)])
            now = node.wait_until(computed) if computed > now else now
        return now
