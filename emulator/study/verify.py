"""Requested against achieved: probes every cable of a cluster and says of each whether it is what the topology says."""

import math
from collections.abc import Mapping

import msgspec

from emulator.errors import EmuError
from emulator.fabric.inspect import DirectionState
from emulator.fabric.probe import Ask, Found
from emulator.place.cluster import Cluster, Progress
from emulator.plan.model import End, Plan
from emulator.study.prepare import read_plan

THOROUGH = Ask(probes=1000, most_probes=20_000, step_ns=1000, train=200, most_train=2000)
SHORT = Ask(probes=60, most_probes=60, step_ns=1000, train=0, most_train=0)
"""What a run is preceded by: delay, wiring, and what the kernel holds."""
REAL_STEP_NS = 200_000
"""On the real clock, between two probes of a cable: a busier machine would measure itself."""
CONFIDENCE = 3.89
"""Standard deviations of a normal distribution that leave out 1 in 10,000: thousands of cables are looked at."""
KOLMOGOROV = 2.23
"""The same for Kolmogorov and Smirnov's distance, times the square root of the number of samples: 2 exp(-2 x^2)."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What still counts as built as requested."""

    delay_ns: int = 20
    delay_share: float = 0.0002
    rate_share: float = 0.015


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    requested: float
    achieved: float
    low: float
    """With `high`, the interval that the true share lies in, but for 1 in 10,000 (Wilson)."""
    high: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a cable."""

    sender: str
    receiver: str
    ok: bool
    faults: tuple[str, ...]
    """What is not as requested; empty where all is."""
    probes: int
    requested_delay_ns: int
    held_delay_ns: int
    delay_ns: dict[str, int]
    """Achieved: min, p50, p99, max, without serialisation."""
    requested_jitter_ns: int
    jitter_distance: float
    """Kolmogorov and Smirnov's, between the delays and the profile's distribution."""
    jitter_bound: float
    """What that may be by chance; 0 without jitter."""
    loss: Loss
    duplicates: int
    reordered: int
    requested_rate_bps: int
    held_rate_bps: int
    rate_bps: float
    """Achieved by a train of full frames; 0: not measured."""
    drops: int
    """By a full queue or by the receiver, while probes were on their way; netem's own loss is not in it."""
    reached: tuple[tuple[str, str], ...]
    """Node and interface of each end where its frames arrived."""


class CableVerdict(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    a: str
    b: str
    profile: str
    ok: bool
    a_to_b: Verdict
    b_to_a: Verdict


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What `emu verify --json` prints. Times in ns, rates in bits per second on the wire."""

    topology: str
    kernel: str
    clock: str
    ok: bool
    bounds: Bounds
    cables: tuple[CableVerdict, ...]
    notes: tuple[str, ...]

    @property
    def faults(self) -> list[str]:
        """One line for each fault, with its cable."""
        return [
            f"cable {cable.name}, {way.sender} to {way.receiver}: {fault}"
            for cable in self.cables
            for way in (cable.a_to_b, cable.b_to_a)
            for fault in way.faults
        ]


def verify(
    cluster: Cluster, bounds: Bounds, ask: Ask, progress: Progress, limit_s: float, expected: Plan | None = None
) -> Verification:
    """Probes all cables of a standing cluster. `expected`: the plan of its topology as it is read now; without it, what
    the cluster was built from. Raises what probing raises."""
    record, plan = cluster.record, cluster.record.plan
    if record.clock == "real":
        # A train arrives there as this host's processors come to it, whatever its rate.
        ask = msgspec.structs.replace(ask, step_ns=max(ask.step_ns, REAL_STEP_NS), train=0)
    before = cluster.inspect()
    found = cluster.probe(ask, progress, limit_s)
    after = cluster.inspect()
    wanted = {cable.name: cable for cable in (expected or plan).cables}
    cables = []
    for number, (cable, was, now) in enumerate(zip(plan.cables, before, after, strict=True)):
        there, back = found[2 * number : 2 * number + 2]
        should = wanted.get(cable.name, cable)
        a_to_b = _verdict(should.a, should.b, there, was.a_to_b, now.a_to_b, bounds)
        b_to_a = _verdict(should.b, should.a, back, was.b_to_a, now.b_to_a, bounds)
        ok = a_to_b.ok and b_to_a.ok
        cables.append(
            CableVerdict(
                name=cable.name,
                a=cable.a.node,
                b=cable.b.node,
                profile=cable.profile,
                ok=ok,
                a_to_b=a_to_b,
                b_to_a=b_to_a,
            )
        )
    return Verification(
        topology=plan.topology,
        kernel=record.place,
        clock=record.clock,
        ok=all(cable.ok for cable in cables),
        bounds=bounds,
        cables=tuple(cables),
        notes=tuple(_notes(cables, record.clock)),
    )


def expected_plan(cluster: Cluster) -> tuple[Plan | None, str]:
    """The plan of the topology that a standing cluster was built from, as its file says now, and why there is none."""
    record = cluster.record
    try:
        plan = read_plan(
            record.topology_file,
            cluster=record.name,
            seed=record.seed,
            ideal=record.ideal,
            ignore_ports=True,
            force=True,
        )
    except EmuError as error:
        return None, f"the topology cannot be read again ({error}): the cables are held against what was built"
    return plan, ""


def _verdict(
    sender: End,
    receiver: End,
    found: Found,
    was: DirectionState,
    now: DirectionState,
    bounds: Bounds,
) -> Verdict:
    shaping, held = sender.egress, now.held
    loss = _loss(shaping.loss, found.lost, found.probes)
    bound = _jitter_bound(shaping.jitter_ns, shaping.correlation, found.probes - found.lost)
    queue_drops = now.traffic.drops - was.traffic.drops
    drops = now.traffic.receive_drops - was.traffic.receive_drops + (0 if shaping.loss else queue_drops)
    faults = [
        *_wiring_faults(sender, receiver, found),
        *_delay_faults(shaping.delay_ns, shaping.jitter_ns, found, bounds),
    ]
    if bound and found.distance > bound:
        faults.append(f"jitter is not the profile's: distance {found.distance:.3f}, by chance at most {bound:.3f}")
    if not loss.low <= shaping.loss <= loss.high:
        faults.append(f"loss {loss.achieved:.3%} ({found.lost} of {found.probes}), requested {shaping.loss:.3%}")
    for what, count, share in (("doubled", found.duplicates, shaping.duplicate), ("overtaken", found.reordered, 0.0)):
        interval = _loss(share, count, found.probes)
        if what == "overtaken" and (shaping.reorder or shaping.jitter_ns):
            continue
        if not interval.low <= share <= interval.high:
            faults.append(f"{count} of {found.probes} frames {what}, requested {share:.3%}")
    if found.train and abs(found.rate_bps / shaping.rate_bps - 1) > bounds.rate_share:
        faults.append(f"rate {found.rate_bps / 1e9:.3f} Gbit/s, requested {shaping.rate_bps / 1e9:.3f}")
    for name, have, want in (
        ("delay", held.delay_ns, shaping.delay_ns),
        ("jitter", held.jitter_ns, shaping.jitter_ns),
        ("rate", held.rate_bps, shaping.rate_bps),
    ):
        if have != want:
            faults.append(f"the kernel holds a {name} of {have}, requested {want}")
    if drops:
        faults.append(f"{drops} frames dropped by a full queue")
    return Verdict(
        sender=found.sender,
        receiver=found.receiver,
        ok=not faults,
        faults=tuple(faults),
        probes=found.probes,
        requested_delay_ns=shaping.delay_ns,
        held_delay_ns=held.delay_ns,
        delay_ns={"min": found.min_ns, "p50": found.p50_ns, "p99": found.p99_ns, "max": found.max_ns},
        requested_jitter_ns=shaping.jitter_ns,
        jitter_distance=found.distance,
        jitter_bound=bound,
        loss=loss,
        duplicates=found.duplicates,
        reordered=found.reordered,
        requested_rate_bps=shaping.rate_bps,
        held_rate_bps=held.rate_bps,
        rate_bps=found.rate_bps,
        drops=drops,
        reached=found.reached,
    )


def _wiring_faults(sender: End, receiver: End, found: Found) -> list[str]:
    """Where frames went that should have gone from `sender` to `receiver`."""
    should = receiver.node, receiver.interface
    if found.reached == (should,):
        return []
    if not found.reached:
        return [f"nothing that leaves {sender.interface} of {sender.node} arrives anywhere"]
    where = ", ".join(f"{interface} of {node}" for node, interface in found.reached)
    should_lead = f"{sender.interface} of {sender.node} should lead to {receiver.interface} of {receiver.node}"
    return [f"{should_lead}, and leads to {where}"]


def _delay_faults(requested: int, jitter: int, found: Found, bounds: Bounds) -> list[str]:
    if found.lost == found.probes:
        return []
    tolerance = bounds.delay_ns + bounds.delay_share * requested
    if not jitter:
        low, high = requested - tolerance, requested + tolerance
        if low <= found.min_ns and found.max_ns <= high:
            return []
    else:
        # The median of n samples, where half of the jitter's weight is spread over at most 2 jitter.
        tolerance += CONFIDENCE * jitter / math.sqrt(found.probes - found.lost)
        if abs(found.p50_ns - requested) <= tolerance:
            return []
    return [
        f"delay {found.min_ns / 1000:.3f} to {found.max_ns / 1000:.3f} us, median {found.p50_ns / 1000:.3f}, "
        f"requested {requested / 1000:.3f}"
    ]


def _jitter_bound(jitter_ns: int, correlation: float, samples: int) -> float:
    """Samples that hang together count for fewer. Tables of 4096 entries and whole nanoseconds add a little."""
    if not jitter_ns or not samples:
        return 0.0
    independent = samples * (1 - correlation) / (1 + correlation)
    return KOLMOGOROV / math.sqrt(max(1.0, independent)) + 1 / 1024 + 1 / jitter_ns


def _loss(requested: float, lost: int, probes: int) -> Loss:
    """Wilson's interval."""
    share, z = lost / probes, CONFIDENCE
    centre = (share + z * z / (2 * probes)) / (1 + z * z / probes)
    half = z / (1 + z * z / probes) * math.sqrt(share * (1 - share) / probes + z * z / (4 * probes * probes))
    low, high = (max(0.0, centre - half) if lost else 0.0), min(1.0, centre + half)
    return Loss(requested=requested, achieved=share, low=low, high=high if lost < probes else 1.0)


def _notes(cables: list[CableVerdict], clock: str) -> list[str]:
    ways = [way for cable in cables for way in (cable.a_to_b, cable.b_to_a)]
    notes = []
    unseen = [way for way in ways if way.loss.requested and way.loss.requested * way.probes < 1]
    if unseen:
        notes.append(f"{len(unseen)} directions lose so little that {unseen[0].probes} probes need not show it")
    if clock == "real":
        notes.append("rates are not measured on the real clock")
        late = [way for way in ways if way.delay_ns["min"] > way.requested_delay_ns and not way.requested_jitter_ns]
        if late:
            floor = min(way.delay_ns["p50"] - way.requested_delay_ns for way in late)
            notes.append(
                f"this host's real clock adds {floor / 1000:.1f} us or more to each hop; for less use --clock virtual"
            )
    return notes


def worst(verification: Verification) -> Mapping[str, float]:
    """The largest deviations of all directions: of the median delay in ns, and of the rate as a share."""
    ways = [way for cable in verification.cables for way in (cable.a_to_b, cable.b_to_a)]
    return {
        "delay_ns": max(abs(way.delay_ns["p50"] - way.requested_delay_ns) for way in ways),
        "rate_share": max(
            (abs(way.rate_bps / way.requested_rate_bps - 1) for way in ways if way.rate_bps), default=0.0
        ),
        "jitter_distance": max(way.jitter_distance for way in ways),
    }
