"""distributed-llama 0.16: the root broadcasts the input, then two all-gathers of quantised vectors in each layer, then
slices of the logits to the root. `payload` is the input: one 32-bit value for each dimension of the model.

Source: github.com/b4rtaz/distributed-llama, src/nn/nn-network.cpp (writeMany, syncWithRoot, syncNodeSlices) and
src/llm.cpp. Bytes a token at the root, n nodes: sends (n - 1)(2 layers q + 4 dim), receives (n - 1)(2 layers q +
4 vocabulary / n), with q = 34 dim / 32: the q80 format holds 32 values in 34 bytes.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Annotated

import msgspec

from emulator.workload.patterns.base import Pair, Pattern, Team, pair

if TYPE_CHECKING:
    from emulator.workload.node import Node

CHUNK_BYTES = 4096
"""Of one send call; each peer gets its first chunk before any gets its second."""
FLOAT_BYTES = 4
Q80_VALUES = 32
Q80_BYTES = 34


class DistributedLlama(Pattern):
    layers: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 32
    """The compute time is split evenly before the all-gathers, two for each layer."""
    vocabulary: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 128_256

    def vector_bytes(self, team: Team) -> int:
        """What a node sends to each other in an all-gather."""
        return team.payload_bytes // FLOAT_BYTES // Q80_VALUES * Q80_BYTES

    def logits_bytes(self, team: Team) -> int:
        """What each worker sends to the root at the end."""
        return self.vocabulary // len(team.nodes) * FLOAT_BYTES

    def connections(self, team: Team) -> set[Pair]:
        count = len(team.nodes)
        if team.payload_bytes % (FLOAT_BYTES * Q80_VALUES):
            raise ValueError(
                f"the payload of {team.payload_bytes} bytes is no vector in blocks of 32 32-bit values; write "
                "`hidden_size` (a multiple of 32) and `precision: 32bit`"
            )
        if self.vocabulary % count:
            raise ValueError(f"a vocabulary of {self.vocabulary} cannot be cut into {count} slices; take other nodes")
        return {pair(a, b) for a, b in combinations(range(count), 2)}

    def compute_on_path_ns(self, team: Team, compute_ns: tuple[int, ...]) -> int:
        return max(compute_ns) // (2 * self.layers) * (2 * self.layers)

    def ahead_bytes(self, team: Team) -> int:
        return max(team.payload_bytes, self.logits_bytes(team))

    def token(self, node: Node, number: int, now: int) -> int:
        peers = [node.link(peer) for peer in range(node.count) if peer != node.index]
        if node.index == 0:
            node.send_sized([(link, node.payload_bytes) for link in peers], now, CHUNK_BYTES)
        else:
            now = node.receive_sized([(node.link(0), node.payload_bytes)], CHUNK_BYTES)
        vector = self.vector_bytes(node.team)
        for _ in range(2 * self.layers):
            now = node.compute(now, parts=2 * self.layers)
            node.send_sized([(link, vector) for link in peers], now, CHUNK_BYTES)
            now = node.receive_sized([(link, vector) for link in peers], CHUNK_BYTES)
        logits = self.logits_bytes(node.team)
        if node.index:
            node.send_sized([(node.link(0), logits)], now, CHUNK_BYTES)
            return 0
        return node.receive_sized([(link, logits) for link in peers], CHUNK_BYTES)
