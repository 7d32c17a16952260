"""From a topology's cables to the plan: a pure function, without privilege or I/O."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from emulator.plan import addresses
from emulator.plan.model import Cable, End, Neighbour, Node, Plan, Route, Shaping
from emulator.plan.names import interface_name, namespace_name, seed
from emulator.plan.routes import Hop, both_directions, by_sender, ways_from
from emulator.spec.links import Flow, ResolvedLink
from emulator.spec.topology import Topology

SMALLEST_FRAME = 64
"""Bytes; a queue is counted in packets, and the smallest ones need the most places."""
SMALLEST_LIMIT = 1_000_000
"""Places in a queue at the least: TCP fills what its buffers allow, and a queue costs memory only when filled."""
LARGEST_LIMIT = 2**31 - 1
SMALLEST_BUFFER = 4 << 20
LARGEST_BUFFER = 1 << 30
"""Bytes of a TCP socket buffer, at the least and at the most."""


def build(
    topology: Topology,
    links: Sequence[ResolvedLink],
    *,
    cluster: str,
    run_seed: int = 1,
    cpu_speed: float | None = None,
) -> Plan:
    """The plan of a topology whose cables are `links` (`spec.links.links`).

    `run_seed` makes jitter and loss another, but repeatable, sequence. `cpu_speed` overrides that of every node.
    """
    switches = list(dict.fromkeys(link.b for link in links if link.b_kind == "switch"))
    cables = _cables(links, switches, run_seed)
    routes = routes_over(list(topology.members), cables, switches)
    buffer = _socket_buffer(cables, routes)
    nodes = [
        Node(
            name=name,
            kind="node",
            namespace=namespace_name(cluster, name),
            address=addresses.own(index),
            memory_bytes=entry.memory or 0,
            memory_bandwidth_bytes_per_s=entry.memory_bandwidth or 0,
            cpu_speed=cpu_speed if cpu_speed is not None else entry.cpu_speed or 0.0,
            routes=tuple(routes[name]),
            neighbours=_neighbours(name, cables),
            sysctls=_sysctls(buffer, topology.ipv6),
        )
        for index, (name, entry) in enumerate(topology.members.items())
    ]
    nodes += [
        Node(
            name=name,
            kind="switch",
            namespace=namespace_name(cluster, name),
            address="",
            fdb=_forwarding(name, cables),
            sysctls=_quiet(topology.ipv6),
        )
        for name in switches
    ]
    return Plan(
        cluster=cluster,
        topology=topology.name,
        description=topology.description,
        nodes=tuple(nodes),
        cables=tuple(cables),
        groups={name: topology.group(name) for name in topology.groups},
        planes={
            name: tuple(dict.fromkeys(node for nodes in topology.plane_nodes(plane) for node in nodes))
            for name, plane in topology.planes.items()
        },
        hosts={node.name: node.address for node in nodes if node.kind == "node"},
    )


def _cables(links: Sequence[ResolvedLink], switches: list[str], run_seed: int) -> list[Cable]:
    taken: dict[str, set[str]] = defaultdict(set)
    ports: dict[str, int] = defaultdict(int)
    cables = []
    for index, link in enumerate(links):
        name = f"{link.plane}:{link.a}-{link.b}"
        if link.b_kind == "switch":
            port = addresses.on_switch(switches.index(link.b), ports[link.b])
            ports[link.b] += 1
            address_a, address_b = f"{port}/{addresses.SWITCH_PREFIX}", ""
        else:
            address_a, address_b = (f"{addresses.on_cable(index, end)}/{addresses.CABLE_PREFIX}" for end in (0, 1))
        cables.append(
            Cable(
                name=name,
                plane=link.plane,
                profile=link.profile,
                interconnect=link.interconnect,
                mtu=link.mtu,
                host_cost_ns=link.host_cost_ns,
                a=End(
                    node=link.a,
                    interface=_claim(taken[link.a], link.plane, link.b),
                    mac=addresses.mac(index, 0),
                    address=address_a,
                    egress=_shaping(link.a_to_b, seed(run_seed, name, link.a)),
                ),
                b=End(
                    node=link.b,
                    interface=_claim(taken[link.b], link.plane, link.a),
                    mac=addresses.mac(index, 1),
                    address=address_b,
                    egress=_shaping(link.b_to_a, seed(run_seed, name, link.b)),
                ),
            )
        )
    return cables


def _claim(taken: set[str], plane: str, peer: str) -> str:
    """A name for an interface to `peer`, from now on taken."""
    name = interface_name(plane, peer, taken)
    taken.add(name)
    return name


def _shaping(flow: Flow, flow_seed: int) -> Shaping:
    in_flight = flow.rate_bps * (flow.delay_ns + flow.jitter_ns) // (8 * 10**9)
    return Shaping(
        delay_ns=flow.delay_ns,
        rate_bps=flow.rate_bps,
        limit_packets=min(max(SMALLEST_LIMIT, 2 * in_flight // SMALLEST_FRAME), LARGEST_LIMIT),
        seed=flow_seed,
        jitter_ns=flow.jitter_ns,
        distribution=flow.distribution,
        correlation=flow.correlation,
        loss=flow.loss,
        loss_correlation=flow.loss_correlation,
        duplicate=flow.duplicate,
        reorder=flow.reorder,
    )


def routes_over(nodes: list[str], cables: Sequence[Cable], switches: list[str]) -> dict[str, list[Route]]:
    """Each node's routes over `cables` to all others it can reach. `nodes`: all that are no switches, in order."""
    hops = by_sender(both_directions((c.a.node, c.b.node, c.a.egress.delay_ns, c.b.egress.delay_ns) for c in cables))
    own = {name: addresses.own(index) for index, name in enumerate(nodes)}
    routes = {}
    for source in nodes:
        ways = ways_from(source, hops)
        routes[source] = [
            Route(
                destination=own[target],
                node=target,
                interface=_end(cables[ways[target][0].cable], source).interface,
                gateway=_gateway(ways[target], cables, switches),
                hops=len(ways[target]),
                delay_ns=sum(hop.delay_ns for hop in ways[target]),
            )
            for target in nodes
            if target in ways
        ]
    return routes


def _gateway(way: Sequence[Hop], cables: Sequence[Cable], switches: list[str]) -> str:
    """The address of the first node on the way: the first cable's other end, or who is behind the switch there."""
    first = next(hop for hop in way if hop.receiver not in switches)
    return _end(cables[first.cable], first.receiver).address.partition("/")[0]


def _end(cable: Cable, node: str) -> End:
    return cable.a if cable.a.node == node else cable.b


def _neighbours(node: str, cables: Sequence[Cable]) -> tuple[Neighbour, ...]:
    """Everyone a node can send a frame to: the other ends of its cables, and all others at its switches."""
    found = []
    for cable in cables:
        if node not in (cable.a.node, cable.b.node):
            continue
        mine, other = (cable.a, cable.b) if cable.a.node == node else (cable.b, cable.a)
        # A port of a switch has no address: behind it are the nodes of the switch's other cables.
        others = [other] if other.address else [c.a for c in cables if c.b.node == other.node and c is not cable]
        found += [
            Neighbour(interface=mine.interface, address=end.address.partition("/")[0], mac=end.mac) for end in others
        ]
    return tuple(found)


def _forwarding(switch: str, cables: Sequence[Cable]) -> tuple[Neighbour, ...]:
    """Which MAC address is behind which port of a switch."""
    return tuple(
        Neighbour(interface=cable.b.interface, address="", mac=cable.a.mac)
        for cable in cables
        if cable.b.node == switch
    )


def _socket_buffer(cables: Sequence[Cable], routes: Mapping[str, Sequence[Route]]) -> int:
    """Bytes: four times what is in flight on the fastest cable over the longest way there and back."""
    fastest = max((end.egress.rate_bps for cable in cables for end in (cable.a, cable.b)), default=0)
    longest = max((route.delay_ns for table in routes.values() for route in table), default=0)
    return min(max(SMALLEST_BUFFER, 4 * fastest * 2 * longest // (8 * 10**9)), LARGEST_BUFFER)


def _quiet(ipv6: bool) -> dict[str, str]:
    off = "0" if ipv6 else "1"
    return {"net.ipv6.conf.all.disable_ipv6": off, "net.ipv6.conf.default.disable_ipv6": off}


def _sysctls(buffer: int, ipv6: bool) -> dict[str, str]:
    return {
        **_quiet(ipv6),
        # Nodes that no cable joins reach each other over others, and answers may come another way than the question.
        "net.ipv4.ip_forward": "1",
        "net.ipv4.conf.all.rp_filter": "0",
        "net.ipv4.conf.default.rp_filter": "0",
        "net.ipv4.conf.all.send_redirects": "0",
        "net.ipv4.conf.default.send_redirects": "0",
        "net.ipv4.tcp_rmem": f"4096 {min(buffer, 6 << 20)} {buffer}",
        "net.ipv4.tcp_wmem": f"4096 {min(buffer, 6 << 20)} {buffer}",
        # A connection of a real engine is always in use: it neither forgets its window nor remembers another run's.
        "net.ipv4.tcp_slow_start_after_idle": "0",
        "net.ipv4.tcp_no_metrics_save": "1",
    }
