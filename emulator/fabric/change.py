"""Goes from one plan to another of the same nodes and cables while traffic flows.

Order: cables that come up, with their neighbours; new values of netem; routes; cables that go down. So nothing is sent
over a cable that is to go down once it does, and no route leads over one that is not up yet. Packets on a cable keep
the delay they got when they were sent; those on a cable that goes down are lost, as on one that is pulled.
"""

from collections import defaultdict
from collections.abc import Iterator

from emulator.fabric import netem, requests
from emulator.fabric.enter import enter_network
from emulator.fabric.netlink import Netlink, Request
from emulator.linux import network_namespace_kept
from emulator.plan.model import Cable, End, Node, Plan

_Steps = dict[str, list[Request]]
"""Requests by node."""


def change(old: Plan, new: Plan, everything: bool = False) -> None:
    """Make `new` true where `old` stands; only what differs is touched, or `everything` (all can be said twice).

    Raises ClusterError where a namespace has gone, FabricError where the kernel refuses.
    """
    index = requests.indices(new)
    coming, going = _cables_that_switch(old, new, everything)
    up: _Steps = defaultdict(list)
    down: _Steps = defaultdict(list)
    for steps, cables, state in ((up, coming, True), (down, going, False)):
        for cable in cables:
            for end in (cable.a, cable.b):
                steps[end.node].append(requests.interface_state(new.node(end.node), end.interface, state, index))
    with network_namespace_kept():
        _send(new, up)
        _send(new, _shaping_and_routes(old, new, everything, coming, index))
        _send(new, down)


def _cables_that_switch(old: Plan, new: Plan, everything: bool) -> tuple[list[Cable], list[Cable]]:
    """Cables to bring up, and to take down."""
    coming = [c for c in new.cables if c.name not in new.down and (everything or c.name in old.down)]
    going = [c for c in new.cables if c.name in new.down and (everything or c.name not in old.down)]
    return coming, going


def _shaping_and_routes(
    old: Plan, new: Plan, everything: bool, coming: list[Cable], index: dict[tuple[str, str], int]
) -> _Steps:
    steps: _Steps = defaultdict(list)
    for was, cable in zip(old.cables, new.cables, strict=True):
        for before, end in ((was.a, cable.a), (was.b, cable.b)):
            if everything or before.egress != end.egress:
                steps[end.node].append(_netem(cable, end, index))
    risen = {(end.node, end.interface) for cable in coming for end in (cable.a, cable.b)}
    for before_node, node in zip(old.nodes, new.nodes, strict=True):
        for neighbour in node.neighbours:
            if (node.name, neighbour.interface) in risen:
                steps[node.name].append(requests.new_neighbour(node, neighbour, index))
        steps[node.name] += _routes(before_node, node, new, everything, index)
    return steps


def _netem(cable: Cable, end: End, index: dict[tuple[str, str], int]) -> Request:
    message = netem.message(index[end.node, end.interface], end.egress)
    return Request(message, f"cable {cable.name}, from {end.node}: netem", flags=0)


def _routes(old: Node, new: Node, plan: Plan, everything: bool, index: dict[tuple[str, str], int]) -> Iterator[Request]:
    had = {route.destination: route for route in old.routes}
    have = {route.destination: route for route in new.routes}
    for route in new.routes:
        if everything or had.get(route.destination) != route:
            yield requests.new_route(new, route, index)
    others = {node.address for node in plan.computing if node.name != new.name} if everything else set(had)
    if new.kind == "node":
        for destination in sorted(others - set(have)):
            yield requests.no_route(new, destination)


def _send(plan: Plan, steps: _Steps) -> None:
    for node in plan.nodes:
        if steps.get(node.name):
            enter_network(node.namespace)
            with Netlink() as netlink:
                netlink.send(steps[node.name])
