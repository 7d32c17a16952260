"""Addresses of a cluster: the same in every cluster, which is no clash, for no two share a namespace.

10.0.0.0/16     own addresses, one of each node
10.64.0.0/10    cables between two nodes, a /31 each
10.128.0.0/9    switches, a /20 each
"""

import ipaddress

CABLE_PREFIX = 31
SWITCH_PREFIX = 20

_OWN = int(ipaddress.IPv4Address("10.0.0.0"))
_CABLES = int(ipaddress.IPv4Address("10.64.0.0"))
_SWITCHES = int(ipaddress.IPv4Address("10.128.0.0"))


def own(node: int) -> str:
    """A node's own address; nodes count from 0."""
    return str(ipaddress.IPv4Address(_OWN + 1 + node))


def on_cable(cable: int, end: int) -> str:
    """The address of end 0 or 1 of a cable between two nodes."""
    return str(ipaddress.IPv4Address(_CABLES + 2 * cable + end))


def on_switch(switch: int, port: int) -> str:
    """The address of the node at a switch's port; both count from 0."""
    return str(ipaddress.IPv4Address(_SWITCHES + (switch << (32 - SWITCH_PREFIX)) + 1 + port))


def mac(cable: int, end: int) -> str:
    """A locally administered MAC address, unique in the cluster."""
    number = (0x02E0 << 32) + 2 * cable + end
    return ":".join(f"{number:012x}"[index : index + 2] for index in range(0, 12, 2))
