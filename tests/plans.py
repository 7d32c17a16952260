"""Small plans written out without the builder, so that the fabric is tested against the plan alone."""

from emulator.plan.model import Cable, End, Neighbour, Node, Plan, Route, Shaping

SYSCTLS = {
    "net.ipv6.conf.all.disable_ipv6": "1",
    "net.ipv6.conf.default.disable_ipv6": "1",
    "net.ipv4.ip_forward": "1",
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
    "net.ipv4.tcp_rmem": "4096 131072 268435456",
    "net.ipv4.tcp_wmem": "4096 131072 268435456",
}
SHAPING = Shaping(delay_ns=40_001, rate_bps=80_000_000_000, limit_packets=100_000, seed=1)


def mesh(count: int, cluster: str = "test", shaping: Shaping = SHAPING, mtu: int = 9000) -> Plan:
    """A full mesh: a cable with a /31 for each pair of nodes. `b` ends have the seed 2."""
    names = [f"n{number}" for number in range(count)]
    own = {name: f"10.0.{number >> 8}.{number & 255}" for number, name in enumerate(names)}
    cables = []
    routes: dict[str, list[Route]] = {name: [] for name in names}
    neighbours: dict[str, list[Neighbour]] = {name: [] for name in names}
    pairs = [(a, b) for index, a in enumerate(names) for b in names[index + 1 :]]
    for index, pair in enumerate(pairs):
        ends = []
        for side, node in enumerate(pair):
            number = 2 * index + side
            ends.append(
                End(
                    node=node,
                    interface=f"m-{pair[1 - side]}",
                    mac=f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}",
                    address=f"10.1.{number >> 8}.{number & 255}/31",
                    egress=Shaping(
                        delay_ns=shaping.delay_ns,
                        rate_bps=shaping.rate_bps,
                        limit_packets=shaping.limit_packets,
                        seed=shaping.seed + side,
                        jitter_ns=shaping.jitter_ns,
                        distribution=shaping.distribution,
                        correlation=shaping.correlation,
                        loss=shaping.loss,
                        loss_correlation=shaping.loss_correlation,
                        duplicate=shaping.duplicate,
                        reorder=shaping.reorder,
                    ),
                )
            )
        for here, there in (ends, ends[::-1]):
            gateway = there.address.removesuffix("/31")
            neighbours[here.node].append(Neighbour(interface=here.interface, address=gateway, mac=there.mac))
            routes[here.node].append(
                Route(
                    destination=own[there.node],
                    node=there.node,
                    interface=here.interface,
                    gateway=gateway,
                    hops=1,
                    delay_ns=shaping.delay_ns,
                )
            )
        cables.append(_cable(mtu, *ends))
    nodes = tuple(
        Node(
            name=name,
            kind="node",
            namespace=f"emu-{cluster}-{name}",
            address=own[name],
            routes=tuple(routes[name]),
            neighbours=tuple(neighbours[name]),
            sysctls=SYSCTLS,
        )
        for name in names
    )
    return Plan(cluster=cluster, topology="mesh", description="", nodes=nodes, cables=tuple(cables), hosts=own)


def star(count: int, cluster: str = "test", shaping: Shaping = SHAPING, mtu: int = 1500) -> Plan:
    """Nodes on one switch, in one /24."""
    names = [f"n{number}" for number in range(count)]
    own = {name: f"10.0.0.{number}" for number, name in enumerate(names)}
    address = {name: f"10.1.0.{number + 1}" for number, name in enumerate(names)}
    mac = {name: f"02:00:00:00:00:{number:02x}" for number, name in enumerate(names)}
    cables = tuple(
        _cable(
            mtu,
            End(node=name, interface="s-sw", mac=mac[name], address=f"{address[name]}/24", egress=shaping),
            End(node="sw", interface=f"s-{name}", mac=mac[name].replace("02", "06", 1), address="", egress=shaping),
        )
        for name in names
    )
    nodes = tuple(
        Node(
            name=name,
            kind="node",
            namespace=f"emu-{cluster}-{name}",
            address=own[name],
            routes=tuple(
                Route(
                    destination=own[peer],
                    node=peer,
                    interface="s-sw",
                    gateway=address[peer],
                    hops=2,
                    delay_ns=2 * shaping.delay_ns,
                )
                for peer in names
                if peer != name
            ),
            neighbours=tuple(
                Neighbour(interface="s-sw", address=address[peer], mac=mac[peer]) for peer in names if peer != name
            ),
            sysctls=SYSCTLS,
        )
        for name in names
    )
    switch = Node(
        name="sw",
        kind="switch",
        namespace=f"emu-{cluster}-sw",
        address="",
        sysctls=SYSCTLS,
        fdb=tuple(Neighbour(interface=f"s-{name}", address="", mac=mac[name]) for name in names),
    )
    return Plan(cluster=cluster, topology="star", description="", nodes=(*nodes, switch), cables=cables, hosts=own)


def _cable(mtu: int, a: End, b: End) -> Cable:
    return Cable(
        name=f"m:{a.node}-{b.node}",
        plane="m",
        profile="test",
        interconnect="test",
        mtu=mtu,
        host_cost_ns=0,
        a=a,
        b=b,
    )
