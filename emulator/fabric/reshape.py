"""Gives every cable of a standing cluster its shaping anew, and with it the seed of its random numbers."""

from collections import defaultdict

from emulator.fabric import netem, requests
from emulator.fabric.enter import enter_network
from emulator.fabric.netlink import Netlink, Request
from emulator.linux import network_namespace_kept
from emulator.plan.model import Plan


def reshape(plan: Plan) -> None:
    """Name all of netem's values again on each end of each cable: jitter and loss begin from their seed.

    Raises ClusterError where a namespace has gone, FabricError where the kernel refuses.
    """
    index = requests.indices(plan)
    wanted: dict[str, list[Request]] = defaultdict(list)
    for cable in plan.cables:
        for end in (cable.a, cable.b):
            message = netem.message(index[end.node, end.interface], end.egress)
            wanted[end.node].append(Request(message, f"cable {cable.name}, from {end.node}: netem", flags=0))
    with network_namespace_kept():
        for node in plan.nodes:
            if node.name in wanted:
                enter_network(node.namespace)
                with Netlink() as netlink:
                    netlink.send(wanted[node.name])
