"""Prefill and decode on different nodes: each node of the first half works a prompt and hands its keys and values to
one of the second half, which makes the first token of the answer and sends it back. A token is one prompt.

`payload` is what one token of the prompt has in one layer: its keys and values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from emulator.workload.patterns.base import Pair, Pattern, Team, pair

if TYPE_CHECKING:
    from emulator.workload.node import Node

ANSWER_BYTES = 16
"""The first token, and which prompt it belongs to."""


class PrefillDecode(Pattern):
    layers: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    prompt_tokens: Annotated[int, msgspec.Meta(ge=1, le=100_000_000)] = 1024
    transfer: Literal["each-layer", "at-end"] = "each-layer"
    """A layer's keys and values go out while the next one is computed, or all of them after the last."""

    def connections(self, team: Team) -> set[Pair]:
        count = len(team.nodes)
        if count % 2:
            raise ValueError(f"half of the nodes prefill and half decode, and there are {count}; name an even number")
        return {pair(i, i + count // 2) for i in range(count // 2)}

    def compute_on_path_ns(self, team: Team, compute_ns: tuple[int, ...]) -> int:
        half = len(team.nodes) // 2
        return max(compute_ns[i] // self.layers * self.layers + compute_ns[i + half] for i in range(half))

    def ahead_bytes(self, team: Team) -> int:
        return self.prompt_tokens * team.payload_bytes

    def token(self, node: Node, number: int, now: int) -> int:
        half, size = node.count // 2, self.prompt_tokens * node.payload_bytes
        if node.index >= half:
            prefill = node.link(node.index - half)
            for _ in range(self.layers):
                now = node.receive_sized([(prefill, size)])
            node.send_sized([(prefill, ANSWER_BYTES)], node.compute(now))
            return 0
        decode = node.link(node.index + half)
        for _ in range(self.layers):
            now = node.compute(now, parts=self.layers)
            if self.transfer == "each-layer":
                node.send_sized([(decode, size)], now)
        if self.transfer == "at-end":
            for _ in range(self.layers):
                node.send_sized([(decode, size)], node.clock())
        return node.receive_sized([(decode, ANSWER_BYTES)])
