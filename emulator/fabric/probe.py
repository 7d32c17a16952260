"""Measures each direction of each cable with frames of its own: what it is, against what it should be.

A probe is an Ethernet frame with the end it left by, its number and the time it was sent. The kernel stamps it when it
arrives, so that nobody has to be awake then. Single frames, far enough apart that none waits for another, give delay,
jitter, loss, duplication and order; a train of full frames sent at once gives the rate. Where frames arrive, and where
else, proves the wiring. One process does it all, going from namespace to namespace to open sockets.
"""

from __future__ import annotations

import array
import bisect
import contextlib
import functools
import os
import resource
import select
import socket
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from time import CLOCK_REALTIME, clock_gettime_ns, monotonic_ns

import msgspec

from emulator.errors import FabricError
from emulator.fabric import distribution
from emulator.fabric.enter import enter_network
from emulator.linux import network_namespace_kept, sleep_until
from emulator.plan.model import Cable, End, Plan, Shaping

ETHERTYPE = 0x88B6
"""IEEE 802: for local experiments."""
PROBE = struct.Struct("!6s6sHQIIQ")
"""Receiver and sender on the Ethernet, ethertype; the run, the end it left by, its number, when (ns since 1970)."""
PROBE_BYTES = 64
"""Of a single probe on the wire."""
TRAIN_BYTES = 256 << 20
"""Of trains under way at once: what they take of a guest's memory."""
SLACK = 6000
"""Bytes that the kernel keeps for a frame besides the frame: it takes whole pages."""
BATCH = 100
"""Single probes on each cable between two times that what came is taken out of the sockets."""

SETTLE_NS = 1_000_000
"""Nothing is on its way any more."""

_ETH_P_ALL = 3
_SOL_PACKET, _PACKET_IGNORE_OUTGOING = 263, 23
_SO_TIMESTAMPNS = 35
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_TIMESPEC = struct.Struct("qq")

Report = Callable[[str, float], None]


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """How closely to look."""

    probes: int
    """Single ones, in each direction of a cable without loss."""
    most_probes: int
    """The same on a cable that loses packets: as many as show its loss, up to this."""
    step_ns: int
    """At least this between two of them."""
    train: int
    """Full frames in a train on a cable without jitter; 0: no trains."""
    most_train: int
    """The same with jitter, which takes more."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a cable, as measured. Times in ns."""

    cable: str
    sender: str
    receiver: str
    probes: int
    lost: int
    duplicates: int
    reordered: int
    """Came after one that was sent later."""
    min_ns: int
    """Delay, without serialisation; with the three that follow, 0 where none came."""
    p50_ns: int
    p99_ns: int
    max_ns: int
    distance: float
    """Kolmogorov-Smirnov: the largest difference between the share of delays up to a time and that of the profile."""
    rate_bps: float
    """0: not measured."""
    train: int
    reached: tuple[tuple[str, str], ...]
    """Node and interface of every end where frames arrived, in order of how many."""


class _Side:
    """One end of a cable: its socket, and what has been sent and received."""

    def __init__(self, number: int, cable: Cable, end: End, far: End) -> None:
        self.number, self.cable, self.end, self.far = number, cable, end, far
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self.sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        self.sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
            self.sock.setsockopt(socket.SOL_SOCKET, option, TRAIN_BYTES)
        # All kinds of frames: a port of a bridge hands over no others, since the bridge takes them first.
        self.sock.bind((end.interface, _ETH_P_ALL))
        self.addresses = tuple(bytes.fromhex(mac.replace(":", "")) for mac in (far.mac, end.mac))
        self.sent = 0
        self.arrivals: list[tuple[int, int]] = []
        """Of what this end sent: number and time since it was sent, in the order they arrived."""
        self.reached: Counter[tuple[str, str]] = Counter()

    def send(self, run: int, padding: bytes) -> None:
        now = clock_gettime_ns(CLOCK_REALTIME)
        head = PROBE.pack(*self.addresses, ETHERTYPE, run, self.number, self.sent, now)
        self.sent += 1
        with contextlib.suppress(OSError):  # a cable that is down: lost
            self.sock.send(head + padding)

    def start(self) -> None:
        """Forget what went before."""
        self.sent, self.arrivals = 0, []

    @property
    def shaping(self) -> Shaping:
        return self.end.egress

    @property
    def full_bytes(self) -> int:
        """Of a full frame on the wire."""
        return self.cable.mtu + 14

    def wire_ns(self, size: int) -> float:
        return size * 8e9 / self.shaping.rate_bps


def probe(plan: Plan, ask: Ask, report: Report) -> list[Found]:
    """Measures both directions of every cable of a standing cluster, in the plan's order.

    Raises ClusterError where a namespace has gone, FabricError where sockets cannot be opened.
    """
    if not plan.cables:
        return []
    run = int.from_bytes(os.urandom(8), "big")
    with contextlib.ExitStack() as stack:
        sides = _open(plan, stack)
        poll = select.poll()
        for side in sides:
            poll.register(side.sock, select.POLLIN)
        ends = {side.sock.fileno(): side for side in sides}

        def collect() -> None:
            _collect(poll, ends, sides, run)

        _single(sides, ask, run, collect, report)
        found = [_delays(side) for side in sides]
        rates = _trains(sides, ask, run, collect, report) if ask.train else {}
    return [
        msgspec.structs.replace(
            one,
            rate_bps=rates.get(side.number, (0.0, 0))[0],
            train=rates.get(side.number, (0.0, 0))[1],
            reached=tuple(end for end, _ in side.reached.most_common()),
        )
        for side, one in zip(sides, found, strict=True)
    ]


def _open(plan: Plan, stack: contextlib.ExitStack) -> list[_Side]:
    """A socket on each end of each cable; two in a row are the directions of one cable."""
    ends = [pair for c in plan.cables for pair in ((c, c.a, c.b), (c, c.b, c.a))]
    need = len(ends) + 64
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < need:
        if hard < need:
            raise FabricError(f"verifying {len(plan.cables)} cables takes {need} open files, and {hard} are allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
    by_node: dict[str, list[int]] = {}
    for number, (_, end, _) in enumerate(ends):
        by_node.setdefault(end.node, []).append(number)
    sides: dict[int, _Side] = {}
    with network_namespace_kept():
        for node in plan.nodes:
            enter_network(node.namespace)
            for number in by_node.get(node.name, []):
                cable, end, far = ends[number]
                try:
                    sides[number] = _Side(number, cable, end, far)
                except OSError as error:
                    raise FabricError(
                        f"cable {cable.name}: {end.interface} of {end.node} cannot be listened to: {error.strerror}"
                    ) from None
                stack.enter_context(sides[number].sock)
    return [sides[number] for number in range(len(ends))]


def _single(sides: Sequence[_Side], ask: Ask, run: int, collect: Callable[[], None], report: Report) -> None:
    """Single probes on all cables at once, one on each at each step."""
    wanted = [_probes(side.shaping, ask) for side in sides]
    # netem's tables end at 4 standard deviations: by then the one before has arrived, whatever its delay. Where that is
    # long, several are under way on a cable.
    step = max(
        ask.step_ns,
        *(
            min(side.shaping.delay_ns, SETTLE_NS) + 8 * side.shaping.jitter_ns + round(2 * side.wire_ns(PROBE_BYTES))
            for side in sides
        ),
    )
    settle = max(side.shaping.delay_ns + 8 * side.shaping.jitter_ns for side in sides) + step + SETTLE_NS
    padding = bytes(PROBE_BYTES - PROBE.size)
    now = monotonic_ns() + step
    for number in range(max(wanted)):
        sleep_until(now)
        now += step
        for side, count in zip(sides, wanted, strict=True):
            if number < count:
                side.send(run, padding)
        if number % BATCH == BATCH - 1:
            sleep_until(now + settle)
            collect()
            report("probing", 0.5 * number / max(wanted))
            # Others hear that, and what they do may take time, too.
            now = monotonic_ns() + SETTLE_NS
    sleep_until(now + settle)
    collect()


def _probes(shaping: Shaping, ask: Ask) -> int:
    """Enough that some 30 are lost or doubled."""
    shares = [share for share in (shaping.loss, shaping.duplicate, shaping.reorder) if share]
    return min(ask.most_probes, max([ask.probes, *(round(30 / share) for share in shares)]))


def _trains(
    sides: Sequence[_Side], ask: Ask, run: int, collect: Callable[[], None], report: Report
) -> dict[int, tuple[float, int]]:
    """The rate of each direction and the frames it comes from, by number of the side; as many at once as fit memory."""
    rates: dict[int, tuple[float, int]] = {}
    rest = list(sides)
    while rest:
        report("measuring rates", 0.5 + 0.5 * (1 - len(rest) / len(sides)))
        batch: list[tuple[_Side, int]] = []
        under_way = 0
        while rest and (not batch or under_way < TRAIN_BYTES):
            side = rest.pop()
            count = ask.most_train if side.shaping.jitter_ns else ask.train
            batch.append((side, count))
            under_way += count * (side.full_bytes + SLACK)
        for side, count in batch:
            side.start()
            padding = bytes(side.full_bytes - PROBE.size)
            for _ in range(count):
                side.send(run, padding)
        longest = max(
            side.shaping.delay_ns + 8 * side.shaping.jitter_ns + count * side.wire_ns(side.full_bytes)
            for side, count in batch
        )
        sleep_until(monotonic_ns() + round(1.1 * longest) + SETTLE_NS)
        collect()
        for side, count in batch:
            rates[side.number] = (_rate(side), count)
    return rates


def _rate(side: _Side) -> float:
    """Bits per second of the train: its slope, arrival over place, in the second half. In the first, jitter settles:
    where order is kept, the latest frame so far holds up those behind it."""
    times = [time for _, time in side.arrivals]
    half = len(times) // 2
    points = list(enumerate(times[half:]))
    if len(points) < 2:
        return 0.0
    mean_place = (len(points) - 1) / 2
    mean_time = sum(time for _, time in points) / len(points)
    spread = sum((place - mean_place) ** 2 for place, _ in points)
    slope = sum((place - mean_place) * (time - mean_time) for place, time in points) / spread
    return side.full_bytes * 8e9 / slope if slope > 0 else 0.0


def _collect(poll: select.poll, ends: dict[int, _Side], sides: Sequence[_Side], run: int) -> None:
    """Take what has arrived out of all sockets. No call fails: on the virtual clock that takes 1 us, for which frames
    on their way would have to wait."""
    while ready := poll.poll(0):
        for descriptor, _ in ready:
            here = ends[descriptor]
            try:
                data, ancillary, _, _ = here.sock.recvmsg(PROBE_BYTES, 64)
            except OSError:  # its interface went down
                continue
            if len(data) < PROBE.size:
                continue
            _, _, kind, of, number, place, sent = PROBE.unpack_from(data)
            if kind == ETHERTYPE and of == run:
                seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
                sides[number].arrivals.append((place, seconds * 1_000_000_000 + nanoseconds - sent))
                sides[number].reached[here.end.node, here.end.interface] += 1


def _delays(side: _Side) -> Found:
    wire = round(side.wire_ns(PROBE_BYTES))
    seen: set[int] = set()
    latest, reordered = -1, 0
    delays: list[int] = []
    for number, time in side.arrivals:
        if number in seen:
            continue
        seen.add(number)
        delays.append(time - wire)
        reordered += number < latest
        latest = max(latest, number)
    ordered = sorted(delays)

    def at(share: float) -> int:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0

    return Found(
        cable=side.cable.name,
        sender=side.end.node,
        receiver=side.far.node,
        probes=side.sent,
        lost=side.sent - len(seen),
        duplicates=len(side.arrivals) - len(seen),
        reordered=reordered,
        min_ns=at(0),
        p50_ns=at(0.5),
        p99_ns=at(0.99),
        max_ns=at(1),
        distance=_distance(ordered, side.shaping),
        rate_bps=0.0,
        train=0,
        reached=(),
    )


def _distance(ordered: Sequence[int], shaping: Shaping) -> float:
    """0 without jitter."""
    if not ordered or not shaping.jitter_ns:
        return 0.0
    count, worst = len(ordered), 0.0
    for place, delay in enumerate(ordered):
        share = expected_share(shaping, delay)
        worst = max(worst, share - place / count, (place + 1) / count - share)
    return worst


def expected_share(shaping: Shaping, delay_ns: float) -> float:
    """The share of packets that netem delays by no more than this, by its distribution."""
    if not shaping.jitter_ns:
        return float(delay_ns >= shaping.delay_ns)
    distance = (delay_ns - shaping.delay_ns) / shaping.jitter_ns
    if shaping.distribution == "uniform":
        return min(1.0, max(0.0, (distance + 1) / 2))
    values = _quantiles(shaping.distribution)
    return bisect.bisect_right(values, distance * distribution.SCALE) / len(values)


@functools.cache
def _quantiles(name: str) -> array.array[int]:
    return array.array("h", distribution.table(name))
