"""Star, as llama.cpp's RPC backend works: the first node hands its state to each other node in turn, and takes it back
before it goes on to the next. Source: github.com/ggml-org/llama.cpp, ggml/src/ggml-rpc/ggml-rpc.cpp.

For each remote node and token: the input goes out with the command to compute, whose answer says that it is done; then
the output is asked for and comes back. That makes two round trips; where an engine needs more, they carry commands and
answers only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from emulator.workload.patterns.base import Pair, Pattern, Team, pair

if TYPE_CHECKING:
    from emulator.workload.node import Node


class Star(Pattern):
    round_trips: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 2
    """For each remote node and token. The first carries the payload there, the last carries it back."""
    command_bytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 32
    """Of a command and of an answer without payload; a few fields of 8 bytes in llama.cpp."""
    graph_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 26)] = 0
    """With the command to compute, where the engine sends the compute graph for each token anew."""

    def connections(self, team: Team) -> set[Pair]:
        return {pair(0, remote) for remote in range(1, len(team.nodes))}

    def compute_on_path_ns(self, team: Team, compute_ns: tuple[int, ...]) -> int:
        return sum(compute_ns)

    def token(self, node: Node, number: int, now: int) -> int:
        there = [self.command_bytes] * self.round_trips
        back = [self.command_bytes] * self.round_trips
        there[0] += node.payload_bytes + self.graph_bytes
        back[-1] += node.payload_bytes
        if node.index:
            client = node.link(0)
            for trip in range(self.round_trips):
                now = node.receive_sized([(client, there[trip])])
                if trip == 0:
                    now = node.compute(now)
                node.send_sized([(client, back[trip])], now)
            return 0
        for remote in range(1, node.count):
            link = node.link(remote)
            for trip in range(self.round_trips):
                node.send_sized([(link, there[trip])], now)
                now = node.receive_sized([(link, back[trip])])
        # Its own layers are the last ones, and the output.
        return node.compute(now)
