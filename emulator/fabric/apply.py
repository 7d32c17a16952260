"""Makes a plan true in this kernel: namespaces, then cables, then what each node needs, then reads all of it back."""

import contextlib
import itertools
import os
import resource
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from emulator import linux
from emulator.errors import ClusterError, FabricError
from emulator.fabric import namespace, netem, requests
from emulator.fabric.inspect import Interface, interfaces
from emulator.fabric.journal import CableEntry, Journal
from emulator.fabric.netlink import Netlink
from emulator.plan.model import Cable, End, Node, Plan

Progress = Callable[[str, int, int], None]
"""Called with what is being made, how many are done, and of how many."""

_CARRIER_S = 5.0
"""How long the kernel may take to see that both ends of a cable are up."""
_CARRIER_POLL_S = 0.001


class _Made(NamedTuple):
    node: Node
    descriptor: int
    """Open on the namespace."""
    netlink: Netlink


def apply(plan: Plan, journal: Journal, progress: Progress | None = None) -> None:
    """Make the plan true, recording each step before it is taken. Needs root in this kernel.

    Where it fails, what was made so far stands and is in the journal: take it down with `teardown`.
    Raises ClusterError where a namespace of that name stands already (nothing is made then), PlaceError without root or
    netem, FabricError where the kernel refuses a step or holds another value than asked, StateError on a full disk.
    """
    report = progress or _silent
    _refuse(plan)
    namespace.share_directory()
    index = requests.indices(plan)
    of_node: dict[str, dict[str, Cable]] = defaultdict(dict)
    for cable in plan.cables:
        of_node[cable.a.node][cable.a.interface] = cable
        of_node[cable.b.node][cable.b.interface] = cable
    with contextlib.ExitStack() as stack:
        stack.enter_context(linux.network_namespace_kept())
        made: dict[str, _Made] = {}
        for done, node in enumerate(plan.nodes):
            report("namespaces", done, len(plan.nodes))
            made[node.name] = _make_node(node, journal, stack)
        done = 0
        for _, group in itertools.groupby(plan.cables, key=lambda cable: cable.a.node):
            report("cables", done, len(plan.cables))
            cables = list(group)
            _make_cables(cables, made, index, journal)
            done += len(cables)
        for done, node in enumerate(plan.nodes):
            report("nodes", done, len(plan.nodes))
            made[node.name].netlink.send(list(requests.node_requests(node, of_node[node.name], index)))
        for done, node in enumerate(plan.nodes):
            report("read back", done, len(plan.nodes))
            _verify(node, of_node[node.name], made[node.name].netlink)
        report("read back", len(plan.nodes), len(plan.nodes))


def _silent(_what: str, _done: int, _total: int) -> None:
    pass


def _refuse(plan: Plan) -> None:
    """Raise where the plan cannot be made here, before anything is."""
    for node in plan.nodes:
        if os.path.lexists(namespace.namespace_path(node.namespace)):
            raise ClusterError(
                f"namespace {node.namespace} stands already; choose another --name, or take that cluster down: emu ps"
            )
    needed = 2 * len(plan.nodes) + len(list(Path("/proc/self/fd").iterdir())) + 16
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and needed > limit:
        raise FabricError(
            f"{len(plan.nodes)} nodes need {needed} open files and the limit is {limit}; raise it: ulimit -n {needed}"
        )


def _make_node(node: Node, journal: Journal, stack: contextlib.ExitStack) -> _Made:
    namespace.make(node, journal)
    namespace.write_sysctls(node)
    descriptor = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    stack.callback(os.close, descriptor)
    return _Made(node, descriptor, stack.enter_context(Netlink()))


def _make_cables(
    cables: list[Cable], made: dict[str, _Made], index: dict[tuple[str, str], int], journal: Journal
) -> None:
    """Make cables that all have their end `a` at the same node."""
    journal.write(
        CableEntry(
            name=cable.name,
            namespaces=(made[cable.a.node].node.namespace, made[cable.b.node].node.namespace),
            interfaces=(cable.a.interface, cable.b.interface),
        )
        for cable in cables
    )
    netlink = made[cables[0].a.node].netlink
    netlink.send([requests.veth(cable, index, made[cable.b.node].descriptor) for cable in cables])


def _verify(node: Node, cables: dict[str, Cable], netlink: Netlink) -> None:
    """Compare what the kernel holds with what was asked for, once each cable carries."""
    end = time.monotonic() + _CARRIER_S
    wait = _CARRIER_POLL_S
    while True:
        found = interfaces(netlink, statistics=False)
        waiting = [name for name in cables if name in found and not found[name].running]
        if not waiting:
            break
        if time.monotonic() > end:
            raise FabricError(f"node {node.name}: {', '.join(waiting)} did not come up within {_CARRIER_S:.0f} s")
        time.sleep(wait)
        # Looking takes no virtual time, only the person's: not a thousand times for the second that Linux may take.
        wait *= 2
    for name, cable in cables.items():
        if name not in found:
            raise FabricError(f"cable {cable.name}, from {node.name}: the kernel has no interface {name}")
        wrong = _differences(cable, cable.a if cable.a.node == node.name else cable.b, found[name])
        if wrong:
            raise FabricError(f"cable {cable.name}, from {node.name}: the kernel holds {'; '.join(wrong)}")


def _differences(cable: Cable, end: End, found: Interface) -> list[str]:
    wrong = []
    if found.mtu != cable.mtu:
        wrong.append(f"MTU {found.mtu} where {cable.mtu} was asked for")
    if found.mac != end.mac.lower():
        wrong.append(f"MAC {found.mac} where {end.mac} was asked for")
    if found.gso_max_segments != requests.GSO_MAX_SEGMENTS:
        wrong.append(f"{found.gso_max_segments} segments in one packet where {requests.GSO_MAX_SEGMENTS} was asked for")
    if found.held is None:
        wrong.append(f"{found.qdisc or 'no qdisc'} where netem was asked for")
    else:
        wrong.extend(netem.differences(end.egress, found.held))
    return wrong
