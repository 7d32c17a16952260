"""The TCP connections of a workload, and what each may expect of the cables under it. Pure: a plan in, numbers out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from emulator.plan.model import Cable, End, Plan

HEADER_BYTES = 66
"""On the wire with each packet: Ethernet 14, IPv4 20, TCP 20 and its timestamp option 12."""
PACKET_OVERHEAD_BYTES = HEADER_BYTES - 14
"""What of an MTU is not payload."""


class Direction(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a connection."""

    delay_ns: int
    """Sum of the delays on the way."""
    rates_bps: tuple[int, ...]
    """Of each cable on the way."""
    cost_ns: int
    """What hosts spend on each message: the sum over the nodes (not switches) that send on the way."""
    mtu: int
    """The smallest on the way."""

    @property
    def rate_bps(self) -> int:
        """Of the slowest cable."""
        return min(self.rates_bps)

    def wire_ns(self, size: int) -> int:
        """Serialisation of a message of `size` bytes, headers included: all of it once, on the slowest cable, and its
        first packet on each other one, which forwards only what it has whole."""
        segment = self.mtu - PACKET_OVERHEAD_BYTES
        bits = 8 * (size + max(1, math.ceil(size / segment)) * HEADER_BYTES)
        first_bits = 8 * (min(size, segment) + HEADER_BYTES)
        slowest, *others = sorted(self.rates_bps)
        return round((bits / slowest + sum(first_bits / rate for rate in others)) * 1_000_000_000)

    def expected_ns(self, size: int) -> int:
        """What a message of `size` bytes takes by request on an idle way: cost, delay and serialisation."""
        return self.cost_ns + self.delay_ns + self.wire_ns(size)


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """Where a connection leaves a node."""

    interface: str
    mac: str

    @property
    def address(self) -> bytes:
        """The MAC as it is on the wire."""
        return bytes.fromhex(self.mac.replace(":", ""))


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """One connection, used in both directions. Nodes are indices into `Program.nodes`."""

    a: int
    b: int
    plane: str
    """The plane it is bound to; empty: whatever way the routes take."""
    address: str
    """Where `b` listens and `a` connects to."""
    a_to_b: Direction
    b_to_a: Direction
    a_port: Port | None = None
    b_port: Port | None = None
    """None: other nodes lie between the two, so that no frame reaches one from the other."""

    def sent_by(self, node: int) -> Direction:
        """The direction in which `node`, one of the two, sends."""
        return self.a_to_b if node == self.a else self.b_to_a

    @property
    def in_flight_bytes(self) -> int:
        """What fills the way, there and back, at the faster direction's rate."""
        round_trip_ns = self.a_to_b.delay_ns + self.b_to_a.delay_ns
        return max(self.a_to_b.rate_bps, self.b_to_a.rate_bps) * round_trip_ns // 8_000_000_000


class Wiring:
    """A plan's cables, found by their ends."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.nodes = {node.name: node for node in plan.nodes}
        ends = [
            pair
            for cable in plan.cables
            if cable.name not in plan.down
            for pair in ((cable, cable.a, cable.b), (cable, cable.b, cable.a))
        ]
        self.by_interface = {(end.node, end.interface): (cable, end, far) for cable, end, far in ends}
        self.by_address = {_bare(end.address): (cable, end, far) for cable, end, far in ends if end.address}

    def connect(self, nodes: tuple[str, ...], a: int, b: int, plane: str) -> Connection:
        """The connection between two nodes, given as indices into `nodes`. Raises ValueError where there is no way."""
        there, back = self._hops(nodes[a], nodes[b], plane), self._hops(nodes[b], nodes[a], plane)
        address = _bare(there[-1][1].address) if plane else self.nodes[nodes[b]].address
        a_port, b_port = self._ports(there, back)
        return Connection(
            a=a,
            b=b,
            plane=plane,
            address=address,
            a_to_b=self._direction(there),
            b_to_a=self._direction(back),
            a_port=a_port,
            b_port=b_port,
        )

    def _ports(
        self, there: list[tuple[End, End, Cable]], back: list[tuple[End, End, Cable]]
    ) -> tuple[Port, Port] | tuple[None, None]:
        """Of both ends, where only switches lie between them."""
        between = [self.nodes[end.node].kind for end, _, _ in there[1:]]
        first, last = there[0][0], there[-1][1]
        if "node" in between or (back[0][0], back[-1][1]) != (last, first):
            return None, None
        return Port(interface=first.interface, mac=first.mac), Port(interface=last.interface, mac=last.mac)

    def _hops(self, source: str, target: str, plane: str) -> list[tuple[End, End, Cable]]:
        """Sending end, receiving end and cable of each hop."""
        return self._within_plane(source, target, plane) if plane else self._along_routes(source, target)

    def _along_routes(self, source: str, target: str) -> list[tuple[End, End, Cable]]:
        hops: list[tuple[End, End, Cable]] = []
        here = source
        while here != target:
            routes = self.nodes[here].routes
            route = next((r for r in routes if _bare(r.destination) == self.nodes[target].address), None)
            if route is None or len(hops) > 2 * len(self.nodes):
                raise ValueError(f"no route leads from {source} to {target}; join them with a cable")
            cable, end, far = self.by_interface[here, route.interface]
            hops.append((end, far, cable))
            if not far.address:  # A port of a switch: the gateway is behind another of its ports.
                cable, end, far = self.by_address[route.gateway]
                hops.append((far, end, cable))
            here = hops[-1][1].node
        return hops

    def _within_plane(self, source: str, target: str, plane: str) -> list[tuple[End, End, Cable]]:
        ours = [entry for (node, _), entry in self.by_interface.items() if node == source and entry[0].plane == plane]
        for cable, end, far in ours:
            if far.node == target:
                return [(end, far, cable)]
            for last, port, other in self.by_interface.values():
                if not far.address and port.node == far.node and other.node == target:
                    return [(end, far, cable), (port, other, last)]
        raise ValueError(f"no cable or switch of plane `{plane}` joins {source} and {target}")

    def _direction(self, hops: list[tuple[End, End, Cable]]) -> Direction:
        return Direction(
            delay_ns=sum(end.egress.delay_ns for end, _, _ in hops),
            rates_bps=tuple(end.egress.rate_bps for end, _, _ in hops),
            cost_ns=sum(cable.host_cost_ns for end, _, cable in hops if self.nodes[end.node].kind == "node"),
            mtu=min(cable.mtu for _, _, cable in hops),
        )


def _bare(address: str) -> str:
    return address.partition("/")[0]
