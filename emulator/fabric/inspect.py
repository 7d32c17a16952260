"""What the kernel holds of a plan, and what its cables have carried."""

import os
import struct
from typing import NamedTuple

import msgspec

from emulator import linux
from emulator.errors import ClusterError, FabricError
from emulator.fabric import netem
from emulator.fabric.messages import ifinfmsg
from emulator.fabric.namespace import namespace_path
from emulator.fabric.netem import HeldShaping
from emulator.fabric.netlink import Netlink, attributes
from emulator.plan.model import Cable, End, Plan

_RTM_GETLINK, _RTM_GETQDISC = 18, 38
_RTEXT_FILTER_SKIP_STATS = 8
_IFF_LOWER_UP = 0x10000
_OPERATIONAL_UP = 6

# Attributes of linux/if_link.h, linux/rtnetlink.h and linux/gen_stats.h.
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_OPERSTATE, _IFLA_STATS64, _IFLA_GSO_MAX_SEGS = 1, 3, 4, 16, 23, 40
_TCA_KIND, _TCA_OPTIONS, _TCA_STATS2 = 1, 2, 7
_TCA_STATS_BASIC, _TCA_STATS_QUEUE, _TCA_STATS_PKT64 = 1, 3, 8

_LINK_START, _QDISC_START = 32, 36
"""Where the attributes begin: after the message's header and ifinfomsg or tcmsg."""


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What one direction of a cable has carried since it was made. Bytes are of Ethernet frames, headers included."""

    bytes: int
    packets: int
    queued_packets: int
    """Still on the way."""
    drops: int
    """By netem: the loss that was asked for, and what found its queue full."""
    receive_drops: int
    """By the receiving node's kernel, which had no room."""


class DirectionState(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a cable."""

    sender: str
    receiver: str
    held: HeldShaping
    """As the kernel holds it."""
    traffic: Traffic


class CableState(msgspec.Struct, frozen=True, kw_only=True):
    """One cable."""

    name: str
    a_to_b: DirectionState
    b_to_a: DirectionState


class Interface(NamedTuple):
    """An interface as its kernel describes it."""

    mac: str
    mtu: int
    running: bool
    gso_max_segments: int
    receive_dropped: int
    qdisc: str
    held: HeldShaping | None
    """None: it has no netem."""
    bytes: int
    packets: int
    queued: int
    drops: int


def inspect(plan: Plan) -> tuple[CableState, ...]:
    """The state of each cable, in the plan's order. Raises ClusterError where a namespace or an interface has gone."""
    found: dict[tuple[str, str], Interface] = {}
    with linux.network_namespace_kept():
        for node in plan.nodes:
            try:
                descriptor = os.open(namespace_path(node.namespace), os.O_RDONLY | os.O_CLOEXEC)
                try:
                    linux.setns(descriptor, linux.CLONE_NEWNET)
                finally:
                    os.close(descriptor)
            except OSError:
                raise ClusterError(
                    f"the namespace of node {node.name} has gone; take the cluster down with emu down {plan.cluster}"
                ) from None
            with Netlink() as netlink:
                for name, interface in interfaces(netlink).items():
                    found[node.name, name] = interface
    return tuple(_cable_state(plan, cable, found) for cable in plan.cables)


def interfaces(netlink: Netlink, statistics: bool = True) -> dict[str, Interface]:
    """The interfaces of a socket's namespace, by name. Without `statistics`, what they received is left out (0)."""
    link_request = ifinfmsg()
    link_request["header"]["type"] = _RTM_GETLINK
    if not statistics:
        link_request["attrs"] = [("IFLA_EXT_MASK", _RTEXT_FILTER_SKIP_STATS)]
    qdisc_request = netem.qdisc_message()
    qdisc_request["header"]["type"] = _RTM_GETQDISC
    qdiscs: dict[int, dict[int, bytes]] = {}
    for answer in netlink.dump(qdisc_request):
        index, _handle, parent = struct.unpack_from("iII", answer, 20)
        if parent == netem.TC_H_ROOT:
            qdiscs[index] = attributes(answer, _QDISC_START)
    found = {}
    for answer in netlink.dump(link_request):
        index, flags = struct.unpack_from("iI", answer, 20)
        found_link = attributes(answer, _LINK_START)
        name = found_link[_IFLA_IFNAME].rstrip(b"\0").decode()
        found[name] = _interface(flags, found_link, qdiscs.get(index, {}))
    return found


def _interface(flags: int, link: dict[int, bytes], qdisc: dict[int, bytes]) -> Interface:
    kind = qdisc.get(_TCA_KIND, b"").rstrip(b"\0").decode()
    statistics = attributes(qdisc.get(_TCA_STATS2, b""), 0)
    sent_bytes, packets = struct.unpack_from("QI", statistics.get(_TCA_STATS_BASIC, bytes(12)))
    if _TCA_STATS_PKT64 in statistics:  # There once 32 bits do not hold it.
        (packets,) = struct.unpack("Q", statistics[_TCA_STATS_PKT64])
    queued, _backlog, drops = struct.unpack_from("III", statistics.get(_TCA_STATS_QUEUE, bytes(12)))
    # rtnl_link_stats64: eight numbers, of which the seventh is rx_dropped.
    receive_dropped = struct.unpack_from("8Q", link.get(_IFLA_STATS64, bytes(64)))[6]
    return Interface(
        mac=link.get(_IFLA_ADDRESS, b"").hex(":"),
        mtu=struct.unpack("I", link[_IFLA_MTU])[0],
        running=bool(flags & _IFF_LOWER_UP) and link[_IFLA_OPERSTATE][0] == _OPERATIONAL_UP,
        gso_max_segments=struct.unpack("I", link[_IFLA_GSO_MAX_SEGS])[0],
        receive_dropped=receive_dropped,
        qdisc=kind,
        held=netem.decode(qdisc[_TCA_OPTIONS]) if kind == "netem" else None,
        bytes=sent_bytes,
        packets=packets,
        queued=queued,
        drops=drops,
    )


def _cable_state(plan: Plan, cable: Cable, found: dict[tuple[str, str], Interface]) -> CableState:
    def direction(sender: End, receiver: End) -> DirectionState:
        try:
            sending, receiving = found[sender.node, sender.interface], found[receiver.node, receiver.interface]
        except KeyError as error:
            node, interface = error.args[0]
            raise ClusterError(
                f"cable {cable.name}: interface {interface} of node {node} has gone; "
                f"take the cluster down with emu down {plan.cluster}"
            ) from None
        if sending.held is None:
            raise FabricError(
                f"cable {cable.name}, from {sender.node}: {sender.interface} has {sending.qdisc or 'no qdisc'} "
                f"in place of netem; take the cluster down with emu down {plan.cluster} and up again"
            )
        traffic = Traffic(
            bytes=sending.bytes,
            packets=sending.packets,
            queued_packets=sending.queued,
            drops=sending.drops,
            receive_drops=receiving.receive_dropped,
        )
        return DirectionState(sender=sender.node, receiver=receiver.node, held=sending.held, traffic=traffic)

    return CableState(name=cable.name, a_to_b=direction(cable.a, cable.b), b_to_a=direction(cable.b, cable.a))
