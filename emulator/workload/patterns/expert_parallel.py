"""Expert parallelism: in each layer, tokens go to the nodes of their experts (dispatch), and results come back
(combine).

Which experts a token takes is drawn from a seeded distribution, so every node can tell what it will get. A node with
nothing to send to another sends nothing. `payload` is the hidden state of one token as results come back.
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate, combinations
from random import Random
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from emulator.workload.patterns.base import Pair, Pattern, Team, pair

if TYPE_CHECKING:
    from emulator.workload.node import Link, Node

DRAWS = 8
"""After so many layers, tokens take the same experts again."""


class ExpertParallel(Pattern):
    layers: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    """With experts; half of the compute time is split evenly before their dispatches, half before their combines."""
    experts: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 256
    """Spread evenly over the nodes, in order."""
    top_k: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 8
    """Different experts that each token takes."""
    batch: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 1
    """Tokens on each node."""
    dispatch_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] = 0
    """Of one token on the way to an expert; 0: the payload."""
    copies: Literal["each-expert", "each-node"] = "each-expert"
    """A token goes to each of its experts, or once to each node that has any of them."""
    skew_percent: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    """Exponent of Zipf's law, in hundredths: 0 asks all experts alike, 100 the r-th most popular one 1/r as often."""
    seed: Annotated[int, msgspec.Meta(ge=0)] = 1
    phase: Literal["both", "dispatch", "combine"] = "both"
    """One alone, to measure it."""
    within: str = ""
    """The plane for nodes of one group; left out: whatever way the routes take."""
    across: str = ""
    """The plane for nodes of different groups."""

    def routing(self, nodes: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """For each of DRAWS layers: copies that each node sends to each."""
        return _routing(nodes, self.experts, self.top_k, self.batch, self.copies, self.skew_percent, self.seed)

    def connections(self, team: Team) -> set[Pair]:
        count = len(team.nodes)
        if self.experts % count:
            raise ValueError(f"{self.experts} experts cannot be spread evenly over {count} nodes; take another number")
        if self.top_k > self.experts:
            raise ValueError(f"a token cannot take {self.top_k} of {self.experts} experts; write a smaller top_k")
        for name in (self.within, self.across):
            if name and name not in team.planes:
                raise ValueError(f"no plane is called `{name}`; it has {', '.join(team.planes)}")
        return {pair(a, b, self._plane(team, a, b)) for a, b in combinations(range(count), 2)}

    def compute_on_path_ns(self, team: Team, compute_ns: tuple[int, ...]) -> int:
        return max(compute_ns) // (2 * self.layers) * (2 * self.layers)

    def ahead_bytes(self, team: Team) -> int:
        count = len(team.nodes)
        most = max(draw[a][b] for draw in self.routing(count) for a in range(count) for b in range(count) if a != b)
        return most * max(self.dispatch_bytes, team.payload_bytes)

    def token(self, node: Node, number: int, now: int) -> int:
        routing = self.routing(node.count)
        others = [(node.index + step) % node.count for step in range(1, node.count)]
        links = {peer: node.link(peer, self._plane(node.team, node.index, peer)) for peer in others}
        for turn in range(number * self.layers, (number + 1) * self.layers):
            draw = routing[turn % DRAWS]
            out = {peer: draw[node.index][peer] for peer in others}
            into = {peer: draw[peer][node.index] for peer in others}
            now = node.compute(now, parts=2 * self.layers)
            if self.phase != "combine":
                now = _exchange(node, links, out, into, self.dispatch_bytes or node.payload_bytes, now)
            now = node.compute(now, parts=2 * self.layers)
            if self.phase != "dispatch":
                now = _exchange(node, links, into, out, node.payload_bytes, now)
        return now

    def _plane(self, team: Team, a: int, b: int) -> str:
        same = any(a in group and b in group for group in team.groups.values())
        return self.within if same else self.across


def _exchange(
    node: Node, links: dict[int, Link], out: dict[int, int], into: dict[int, int], size: int, now: int
) -> int:
    """Sends and receives so many copies of `size` bytes to and from each node; returns when the last one had come."""
    node.send_sized([(links[peer], copies * size) for peer, copies in out.items() if copies], now, chunk=size)
    wanted = [(links[peer], copies * size) for peer, copies in into.items() if copies]
    return node.receive_sized(wanted, chunk=size) if wanted else now


@cache
def _routing(
    nodes: int, experts: int, top_k: int, batch: int, copies: str, skew_percent: int, seed: int
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    random = Random(seed)
    draws = []
    for _ in range(DRAWS):
        popular = random.sample(range(experts), experts)
        odds = list(accumulate((rank + 1) ** (-skew_percent / 100) for rank in range(experts)))
        draw = [[0] * nodes for _ in range(nodes)]
        for sender in draw:
            for _ in range(batch):
                chosen: set[int] = set()
                while len(chosen) < top_k:
                    chosen.update(random.choices(popular, cum_weights=odds, k=top_k - len(chosen)))
                homes = [expert * nodes // experts for expert in chosen]
                for home in homes if copies == "each-expert" else set(homes):
                    sender[home] += 1
        draws.append(tuple(map(tuple, draw)))
    return tuple(draws)
