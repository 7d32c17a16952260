"""A step of data-parallel training: forward, backward, and an all-reduce of the gradients round a ring, bucket by
bucket. A bucket is reduced while the backward pass goes on to the next, as PyTorch's DistributedDataParallel does it. A
token is one step.

`payload` is all gradients of 32 bits. The compute time is that of forward and backward: a backward pass takes twice as
long as a forward pass (Kaplan et al. 2020, arXiv:2001.08361, table 1), and gradient checkpointing does the forward pass
once more (Chen et al. 2016, arXiv:1604.06174).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from emulator.workload.patterns.all_reduce_ring import reduce_round
from emulator.workload.patterns.base import Pair, Pattern, Team, pair
from emulator.workload.vector import ELEMENT_BYTES, check_size

if TYPE_CHECKING:
    from emulator.workload.node import Node


class TrainingStep(Pattern):
    buckets: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 8
    """All-reduces per step; the backward pass is split evenly before them."""
    overlap: Literal["yes", "no"] = "yes"
    """No: all buckets are reduced after the backward pass."""
    checkpointing: Literal["none", "full"] = "none"
    """Full: activations are not kept but computed again in the backward pass."""
    gradients: Literal["32bit", "16bit"] = "16bit"
    """As they are sent: mixed precision halves the bytes."""

    def bucket_bytes(self, team: Team) -> int:
        sent = team.payload_bytes if self.gradients == "32bit" else team.payload_bytes // 2
        return sent // self.buckets // ELEMENT_BYTES * ELEMENT_BYTES

    def passes(self, compute_ns: int) -> tuple[int, int]:
        """Of a node: time of the forward pass, and of the backward pass for one bucket."""
        forward = compute_ns // 3
        backward = 2 * forward if self.checkpointing == "none" else 3 * forward
        return forward, backward // self.buckets

    def connections(self, team: Team) -> set[Pair]:
        count = len(team.nodes)
        check_size(self.bucket_bytes(team), count, pieces=count)
        return {pair(i, (i + 1) % count) for i in range(count)}

    def compute_on_path_ns(self, team: Team, compute_ns: tuple[int, ...]) -> int:
        forward, bucket = self.passes(max(compute_ns))
        return forward + bucket * self.buckets

    def ahead_bytes(self, team: Team) -> int:
        return self.bucket_bytes(team)

    def token(self, node: Node, number: int, now: int) -> int:
        size = self.bucket_bytes(node.team)
        forward, backward = self.passes(node.compute_ns)
        # When each bucket's gradients are there: known ahead, because no pass waits for a message.
        ready = [node.compute_beside(now, forward)]
        for _ in range(self.buckets):
            ready.append(node.compute_beside(ready[-1], backward))
        vectors = node.vectors_of(size)
        for bucket in range(self.buckets):
            now = node.wait_until(ready[bucket + 1] if self.overlap == "yes" else ready[-1])
            turn = number * self.buckets + bucket
            vectors.check(reduce_round(node, vectors.own(turn), size, now), turn)
        return node.clock()
