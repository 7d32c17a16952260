"""What a plan's parts are in netlink messages. Interfaces are named by their index, which the plan's order gives."""

import socket
from collections.abc import Iterator, Mapping
from typing import Any

from emulator.errors import FabricError
from emulator.fabric import netem
from emulator.fabric.messages import ifaddrmsg, ifinfmsg, ndmsg, rtmsg
from emulator.fabric.netlink import NLM_F_CREATE, NLM_F_REPLACE, Request
from emulator.plan.model import Cable, End, Neighbour, Node, Plan, Route

LOOPBACK_INDEX = 1
FIRST_INDEX = 16
"""Below it are loopback and the tunnel devices that some kernels put into each new namespace."""
BRIDGE = "bridge"
"""The bridge of a switch. Cables' interfaces have a '-' in their names."""

RTM_NEWLINK, RTM_NEWADDR, RTM_NEWROUTE, RTM_NEWNEIGH = 16, 20, 24, 28
_IFF_UP = 0x1
_NUD_NOARP, _NUD_PERMANENT = 0x40, 0x80
_NTF_MASTER = 0x04
_RT_TABLE_MAIN, _RTPROT_STATIC, _RT_SCOPE_UNIVERSE, _RTN_UNICAST = 254, 4, 0, 1
_RTN_UNREACHABLE = 7
_REPLACE = NLM_F_CREATE | NLM_F_REPLACE

GSO_MAX_SEGMENTS = 1
"""A cable carries packets of its MTU, so that loss, switches and serialisation count for each: no 64 kB super packets.
A limit of the interface, which TCP obeys where it fills its packets: ethtool's switches would take a message each."""


def indices(plan: Plan) -> dict[tuple[str, str], int]:
    """The index of each interface, by node and name. A switch's bridge comes first.

    Unique in the whole plan: where both ends of a veth have the same index, the kernel takes the cable for an ordinary
    device and lets it wait up to 1 s before it reports it running (net/core/link_watch.c, linkwatch_urgent_event).
    """
    names = [(node.name, BRIDGE) for node in plan.nodes if node.kind == "switch"]
    names += [(end.node, end.interface) for cable in plan.cables for end in (cable.a, cable.b)]
    return {name: FIRST_INDEX + number for number, name in enumerate(names)}


def veth(cable: Cable, index: Mapping[tuple[str, str], int], peer_namespace: int) -> Request:
    """A cable, both ends down: `a` in the namespace of the socket, `b` in the one that `peer_namespace` is open on."""

    def end_attributes(end: End) -> list[tuple[str, Any]]:
        return [
            ("IFLA_IFNAME", end.interface),
            ("IFLA_ADDRESS", end.mac),
            ("IFLA_MTU", cable.mtu),
            ("IFLA_GSO_MAX_SEGS", GSO_MAX_SEGMENTS),
            ("IFLA_NUM_TX_QUEUES", 1),
            ("IFLA_NUM_RX_QUEUES", 1),
        ]

    peer = {
        "index": index[cable.b.node, cable.b.interface],
        "attrs": [*end_attributes(cable.b), ("IFLA_NET_NS_FD", peer_namespace)],
    }
    data = ("IFLA_INFO_DATA", {"attrs": [("VETH_INFO_PEER", peer)]})
    message = _link(index[cable.a.node, cable.a.interface])
    message["attrs"] = [
        *end_attributes(cable.a),
        ("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", "veth"), data]}),
    ]
    return Request(message, f"cable {cable.name} ({cable.a.interface} to {cable.b.interface}, MTU {cable.mtu})")


def node_requests(node: Node, cables: Mapping[str, Cable], index: Mapping[tuple[str, str], int]) -> Iterator[Request]:
    """All that is set in a node's namespace once its cables are there. `cables`: the node's, by interface."""
    where = f"node {node.name}"
    yield Request(_link(LOOPBACK_INDEX, up=True), f"{where}: loopback up", flags=0)
    if node.address:
        yield _address(LOOPBACK_INDEX, f"{node.address}/32", f"{where}: own address {node.address}")
    master = None
    if node.kind == "switch":
        master = index[node.name, BRIDGE]
        yield _bridge(master, where)
    for interface, cable in cables.items():
        yield from _end_requests(node.name, cable, index[node.name, interface], master)
    for neighbour in node.neighbours:
        purpose = f"{where}: neighbour {neighbour.address} on {neighbour.interface}"
        yield _neighbour(_index(index, node, neighbour.interface), neighbour.mac, neighbour.address, purpose)
    for entry in node.fdb:
        purpose = f"{where}: forwarding of {entry.mac} to {entry.interface}"
        yield _neighbour(_index(index, node, entry.interface), entry.mac, None, purpose)
    for route in node.routes:
        yield Request(*_route(node, route, index))


def _route(node: Node, route: Route, index: Mapping[tuple[str, str], int]) -> tuple[Any, str]:
    """A route's message, and what it is for."""
    message = _route_message(route.destination, _RTN_UNICAST)
    message["attrs"] = [
        *message["attrs"],
        ("RTA_GATEWAY", route.gateway),
        ("RTA_OIF", _index(index, node, route.interface)),
        *([("RTA_PREFSRC", node.address)] if node.address else []),
    ]
    where = f"node {node.name}"
    return message, f"{where}: route to {route.destination} through {route.gateway} on {route.interface}"


def _route_message(destination: str, kind: int) -> Any:
    message = rtmsg()
    message["header"]["type"] = RTM_NEWROUTE
    message["family"] = socket.AF_INET
    message["dst_len"] = 32
    message["table"] = _RT_TABLE_MAIN
    message["proto"] = _RTPROT_STATIC
    message["scope"] = _RT_SCOPE_UNIVERSE
    message["type"] = kind
    message["attrs"] = [("RTA_DST", destination.removesuffix("/32"))]
    return message


def new_route(node: Node, route: Route, index: Mapping[tuple[str, str], int]) -> Request:
    """A route in place of the one that the node has to that destination, if it has one."""
    message, purpose = _route(node, route, index)
    return Request(message, purpose, _REPLACE)


def no_route(node: Node, destination: str) -> Request:
    """Nothing leads to `destination` any more: programs are told so at once."""
    return Request(
        _route_message(destination, _RTN_UNREACHABLE), f"node {node.name}: no route to {destination}", _REPLACE
    )


def new_neighbour(node: Node, neighbour: Neighbour, index: Mapping[tuple[str, str], int]) -> Request:
    """A permanent neighbour in place of the entry there is: a cable that goes down takes its own along."""
    purpose = f"node {node.name}: neighbour {neighbour.address} on {neighbour.interface}"
    made = _neighbour(_index(index, node, neighbour.interface), neighbour.mac, neighbour.address, purpose)
    return Request(made.message, purpose, _REPLACE)


def interface_state(node: Node, interface: str, up: bool, index: Mapping[tuple[str, str], int]) -> Request:
    """An interface that is there goes up or down."""
    message = _link(_index(index, node, interface), up=up)
    message["change"] = _IFF_UP
    return Request(message, f"node {node.name}: interface {interface} {'up' if up else 'down'}", flags=0)


def _end_requests(node: str, cable: Cable, index: int, master: int | None) -> Iterator[Request]:
    end = cable.a if cable.a.node == node else cable.b
    where = f"cable {cable.name}, from {node}"
    try:
        qdisc = netem.message(index, end.egress)
    except FabricError as error:
        raise FabricError(f"{where}: {error}") from None
    # Shaped before it is up: no packet leaves unshaped, and the kernel need not stop a queue that is in use.
    yield Request(qdisc, f"{where}: netem")
    yield Request(_link(index, up=True, master=master), f"{where}: interface {end.interface} up", flags=0)
    if end.address:
        yield _address(index, end.address, f"{where}: address {end.address} on {end.interface}")


def _index(index: Mapping[tuple[str, str], int], node: Node, interface: str) -> int:
    try:
        return index[node.name, interface]
    except KeyError:
        raise FabricError(f"node {node.name}: the plan names interface {interface!r}, which no cable has") from None


def _link(index: int, up: bool = False, master: int | None = None) -> Any:
    message = ifinfmsg()
    message["header"]["type"] = RTM_NEWLINK
    message["index"] = index
    if up:
        message["flags"] = message["change"] = _IFF_UP
    if master is not None:
        message["attrs"] = [("IFLA_MASTER", master)]
    return message


def _bridge(index: int, where: str) -> Request:
    message = _link(index, up=True)
    data = {"attrs": [("IFLA_BR_STP_STATE", 0), ("IFLA_BR_MCAST_SNOOPING", 0)]}
    message["attrs"] = [
        ("IFLA_IFNAME", BRIDGE),
        ("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", "bridge"), ("IFLA_INFO_DATA", data)]}),
    ]
    return Request(message, f"{where}: bridge")


def _address(index: int, address: str, purpose: str) -> Request:
    message = ifaddrmsg()
    host, _, prefix = address.partition("/")
    message["header"]["type"] = RTM_NEWADDR
    message["family"] = socket.AF_INET
    message["prefixlen"] = int(prefix)
    message["index"] = index
    message["attrs"] = [("IFA_LOCAL", host), ("IFA_ADDRESS", host)]
    return Request(message, purpose)


def _neighbour(index: int, mac: str, address: str | None, purpose: str) -> Request:
    """A permanent neighbour; without an address, a bridge's static forwarding entry (permanent: its own)."""
    message = ndmsg()
    message["header"]["type"] = RTM_NEWNEIGH
    message["family"] = socket.AF_BRIDGE if address is None else socket.AF_INET
    message["ifindex"] = index
    message["state"] = _NUD_NOARP if address is None else _NUD_PERMANENT
    message["flags"] = _NTF_MASTER if address is None else 0
    message["attrs"] = [("NDA_LLADDR", mac), *([("NDA_DST", address)] if address is not None else [])]
    return Request(message, purpose)
