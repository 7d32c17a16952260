"""The plan: everything a cluster will be in a kernel, as plain data. Made by `plan.build`, made true by `fabric`.

Units are in the names: `_ns` nanoseconds, `_bps` bits per second, `_bytes` bytes. Fractions are 0 to 1. Every type
encodes to JSON and back with msgspec, which imports fast enough to be used inside the guest.
"""

from typing import Literal

import msgspec


class Shaping(msgspec.Struct, frozen=True, kw_only=True):
    """What netem does to one direction of a cable, on the egress of the sending end."""

    delay_ns: int
    rate_bps: int
    """Bits per second on the wire, of one direction; netem holds bytes per second, so a multiple of 8."""
    limit_packets: int
    """Queue length, from bandwidth x delay: large enough that a saturated cable without loss drops nothing."""
    seed: int
    """Seed of netem's random numbers, so that jitter and loss repeat."""
    jitter_ns: int = 0
    distribution: Literal["uniform", "normal", "pareto", "paretonormal"] = "uniform"
    correlation: float = 0.0
    """Correlation of each delay with the one before."""
    loss: float = 0.0
    loss_correlation: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    """Share of packets sent at once, past those that wait; needs a delay."""

    @property
    def ideal(self) -> "Shaping":
        """The same without jitter, loss, duplication and reordering."""
        return msgspec.structs.replace(
            self, jitter_ns=0, correlation=0.0, loss=0.0, loss_correlation=0.0, duplicate=0.0, reorder=0.0
        )


class End(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a cable: a network interface inside a node's namespace."""

    node: str
    interface: str
    """At most 15 characters, unique within the node."""
    mac: str
    address: str
    """IPv4 address with its prefix: a /31 on a cable between two nodes, the plane's network on a cable to a switch;
    empty on a port of a switch."""
    egress: Shaping


class Cable(msgspec.Struct, frozen=True, kw_only=True):
    """One veth pair. `a` sends with `a.egress`, `b` with `b.egress`."""

    name: str
    """`PLANE:A-B`, unique in the plan."""
    plane: str
    profile: str
    interconnect: str
    mtu: int
    host_cost_ns: int
    """What the sending node's host spends on each message over this cable before it is on the wire."""
    a: End
    b: End


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """How a node reaches the own address of another: over `interface`, through `gateway`."""

    destination: str
    """Own address of the other node, a /32."""
    node: str
    interface: str
    gateway: str
    """Address of the next node's end, on the network of `interface`."""
    hops: int
    """Cables on the way."""
    delay_ns: int
    """Sum of the delays on the way, without serialisation."""


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A permanent neighbour entry, so that no packet waits for ARP."""

    interface: str
    address: str
    mac: str


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One namespace: a node that computes, or a switch that only forwards."""

    name: str
    kind: Literal["node", "switch"]
    namespace: str
    """Name of the network namespace, unique on the machine: it starts with the cluster's name."""
    address: str
    """Own IPv4 address, on loopback, reachable over any plane; empty for a switch."""
    memory_bytes: int = 0
    memory_bandwidth_bytes_per_s: int = 0
    cpu_speed: float = 0.0
    """Speed of real programs in multiples of this host's, on the virtual clock; 0: computing is free."""
    routes: tuple[Route, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    sysctls: dict[str, str] = {}
    """Written below /proc/sys inside the namespace, dots as slashes, in order."""
    fdb: tuple[Neighbour, ...] = ()
    """Switch only: permanent forwarding entries, so that the first frame is not flooded (`address` is unused)."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A whole cluster. Order matters: nodes, then cables, are made in the order they stand here."""

    cluster: str
    topology: str
    description: str
    nodes: tuple[Node, ...]
    cables: tuple[Cable, ...]
    groups: dict[str, tuple[str, ...]] = {}
    planes: dict[str, tuple[str, ...]] = {}
    """Each plane's nodes, in order."""
    hosts: dict[str, str] = {}
    """Host name to own address, for every node."""
    down: tuple[str, ...] = ()
    """Names of the cables that are pulled. They stand among `cables`; no route leads over them."""

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def hosts_text(self) -> str:
        """What stands in /etc/hosts inside the nodes."""
        lines = ["127.0.0.1\tlocalhost", *(f"{address}\t{name}" for name, address in self.hosts.items())]
        return "\n".join(lines) + "\n"

    @property
    def computing(self) -> tuple[Node, ...]:
        """The nodes that are no switches."""
        return tuple(node for node in self.nodes if node.kind == "node")

    @property
    def ideal(self) -> "Plan":
        """The same cluster with cables that have only delay and rate."""
        replace = msgspec.structs.replace
        return replace(
            self,
            cables=tuple(
                replace(
                    cable,
                    a=replace(cable.a, egress=cable.a.egress.ideal),
                    b=replace(cable.b, egress=cable.b.egress.ideal),
                )
                for cable in self.cables
            ),
        )


def encode(plan: Plan) -> bytes:
    """The plan as one line of JSON."""
    return msgspec.json.encode(plan)


def decode(data: bytes) -> Plan:
    """The plan that `encode` wrote. Raises msgspec.ValidationError on anything else."""
    return msgspec.json.decode(data, type=Plan)
