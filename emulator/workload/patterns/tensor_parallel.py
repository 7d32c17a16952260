"""Tensor parallelism: all-reduces of the hidden state, two in each layer, by one of four algorithms."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from emulator.workload.patterns.all_reduce_mesh import reduce_over
from emulator.workload.patterns.all_reduce_ring import reduce_round
from emulator.workload.patterns.base import Pair, Pattern, Team, pair
from emulator.workload.vector import check_size, from_bytes, join, split, to_bytes

if TYPE_CHECKING:
    from emulator.workload.node import Node

ONE_PHASE_BYTES = 32 << 10
"""Up to here MLX's mesh reduces in one phase, and always between two nodes (github.com/ml-explore/mlx)."""

Algorithm = Literal["auto", "mesh", "ring", "reduce-scatter-all-gather", "recursive-doubling"]


class TensorParallel(Pattern):
    times: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 2
    """All-reduces per token, two for each layer of a model; the compute time is split evenly before them."""
    algorithm: Algorithm = "auto"
    """mesh: the whole vector to every other node. ring: 2(n - 1) steps of 1/n. reduce-scatter-all-gather: 1/n to each,
    and its sum to all. recursive-doubling: the whole vector to log2(n) nodes in turn. auto: as MLX chooses by size."""

    def chosen(self, team: Team) -> str:
        """The algorithm in use."""
        if self.algorithm != "auto":
            return self.algorithm
        small = team.payload_bytes <= ONE_PHASE_BYTES or len(team.nodes) == 2
        return "mesh" if small else "reduce-scatter-all-gather"

    def connections(self, team: Team) -> set[Pair]:
        count = len(team.nodes)
        match self.chosen(team):
            case "mesh":
                check_size(team.payload_bytes, count)
            case "ring":
                check_size(team.payload_bytes, count, pieces=count)
                return {pair(i, (i + 1) % count) for i in range(count)}
            case "recursive-doubling":
                check_size(team.payload_bytes, count)
                if count & (count - 1):
                    raise ValueError(f"recursive doubling takes 2, 4, 8, ... nodes, and there are {count}; name them")
                return {pair(i, i ^ 1 << bit) for i in range(count) for bit in range(count.bit_length() - 1)}
            case _:
                check_size(team.payload_bytes, count, pieces=count)
        return {pair(a, b) for a, b in combinations(range(count), 2)}

    def compute_on_path_ns(self, team: Team, compute_ns: tuple[int, ...]) -> int:
        return max(compute_ns) // self.times * self.times

    def ahead_bytes(self, team: Team) -> int:
        return team.payload_bytes

    def token(self, node: Node, number: int, now: int) -> int:
        algorithm = self.chosen(node.team)
        for turn in range(number * self.times, (number + 1) * self.times):
            now = node.compute(now, parts=self.times)
            vector, size = node.vectors.own(turn), node.payload_bytes
            match algorithm:
                case "mesh":
                    # Each node starts with its successor, so that no node is everyone's first.
                    others = [(node.index + step) % node.count for step in range(1, node.count)]
                    total = reduce_over(node, [node.link(peer) for peer in others], vector, size)
                case "ring":
                    total = reduce_round(node, vector, size, now)
                case "recursive-doubling":
                    total = _reduce_doubling(node, vector, size)
                case _:
                    total = _reduce_in_two_phases(node, vector, size)
            node.vectors.check(total, turn)
            now = node.clock()
        return now


def _reduce_in_two_phases(node: Node, vector: int, size: int) -> int:
    """Each node sums up its piece of all vectors, then sends the sum to all."""
    pieces, sizes = split(vector, size, node.count)
    others = [(node.index + step) % node.count for step in range(1, node.count)]
    for peer in others:
        node.send_data(node.link(peer), to_bytes(pieces[peer], sizes[peer]), node.clock())
    for received in node.receive_data([node.link(peer) for peer in others], sizes[node.index]):
        pieces[node.index] += from_bytes(received)
    data = to_bytes(pieces[node.index], sizes[node.index])
    for peer in others:
        node.send_data(node.link(peer), data, node.clock())
    for link, received in node.receive_each([(node.link(peer), sizes[peer]) for peer in others]):
        pieces[link.peer] = from_bytes(received)
    return join(pieces, sizes)


def _reduce_doubling(node: Node, vector: int, size: int) -> int:
    """After step k, each node holds the sum of 2^(k + 1) vectors."""
    for bit in range(node.count.bit_length() - 1):
        vector = reduce_over(node, [node.link(node.index ^ 1 << bit)], vector, size)
    return vector
