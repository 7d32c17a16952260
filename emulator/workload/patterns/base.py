"""What every pattern is: which nodes talk, and what one of them does for one token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from emulator.workload.node import Node

Pair = tuple[int, int, str]
"""Two nodes, the lower index first, and the plane their connection is bound to (empty: any)."""


class Team(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that take part. A node is its index into `nodes`; patterns count nodes in this order."""

    nodes: tuple[str, ...]
    groups: dict[str, tuple[int, ...]]
    planes: dict[str, tuple[int, ...]]
    payload_bytes: int


class Pattern(msgspec.Struct):
    """Its fields are the parameters of the workload file."""

    def connections(self, team: Team) -> set[Pair]:
        """The pairs that talk. Raises ValueError, with what to do, where the pattern makes no sense on this team."""
        raise NotImplementedError

    def compute_on_path_ns(self, team: Team, compute_ns: tuple[int, ...]) -> int:
        """Compute time on the critical path of a token, when each node computes for its part of `compute_ns`.

        Where tokens start on different nodes in turn: their mean."""
        raise NotImplementedError

    def ahead_bytes(self, team: Team) -> int:
        """What nodes that all send before they receive send over one connection: it has to fit into buffers, or all of
        them would wait for ever. 0 where a node that sends has a node that receives."""
        return 0

    def token(self, node: Node, number: int, now: int) -> int:
        """What `node` does for token `number`; called with the time at which it ended the one before.

        Returns the time at which the node ended the token, or 0 where the token does not end on it.
        """
        raise NotImplementedError


def pair(a: int, b: int, plane: str = "") -> Pair:
    return (min(a, b), max(a, b), plane)
