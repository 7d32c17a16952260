"""Scaling: what more nodes bring, measured by running the pattern, and which compute time gives an efficiency."""

import os
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Literal, NamedTuple

import msgspec

from emulator.errors import PortLimitError, SpecError, UsageError
from emulator.place.choose import Choice
from emulator.place.cluster import Cluster, Progress
from emulator.place.life import temporary
from emulator.plan.model import Plan
from emulator.spec.load import load
from emulator.spec.shipped import resolve
from emulator.spec.topology import Topology
from emulator.spec.workload import Workload
from emulator.study.measure import measure
from emulator.study.prepare import read_plan, read_program
from emulator.workload.result import Result

COUNTS = (1, 2, 4, 8)
LIMITS = (3, 6)
"""Ports of a node that a driver lets through: those of a Mac Studio with M3 Ultra, and all that it has."""
WANTED = (0.47, 0.72)
"""Scaling efficiencies that the design documents name, without the compute time they hold for."""
SENSIBLE_NS = (2_000_000, 1_000_000_000)
"""Compute time of a token on one node: 3e9 active parameters at 4 bits to 405e9 at 16 bits, read at 819 GB/s."""
TOLERANCE = 0.001
"""How near to a wanted efficiency a search ends."""
MAX_RUNS = 8
"""Of one search."""

Mode = Literal["strong", "weak"]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement. Scaling efficiency: tokens/s on n nodes over n times tokens/s on one."""

    topology: str
    workload: str
    nodes: int
    mode: Mode
    """strong: one token, its compute time divided by n. weak: n tokens at once, in messages n times as large; each node
    computes as long as one alone does for one token."""
    compute_time_ns: int
    """Of a token on one node, all compute."""
    step_time_ns: int
    """Mean time of a token (strong) or of n tokens (weak)."""
    communication_time_ns: int
    """Of it, not compute."""
    tokens_per_second: float
    efficiency: float


class Crossing(msgspec.Struct, frozen=True, kw_only=True):
    """The compute time at which a wanted strong efficiency comes out."""

    topology: str
    workload: str
    nodes: int
    wanted: float
    compute_time_ns: int
    """Of a token on one node."""
    efficiency: float
    """Measured there."""
    sensible: bool
    """Within SENSIBLE_NS."""


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """What a topology takes of each node."""

    topology: str
    cables: int
    ports: int
    """Most cables at a node on an interconnect whose driver has a limit."""
    refused: bool
    """By the limit that the topology's own file names; it was then measured as if there were none."""
    fits: dict[str, bool]
    """By number of usable ports."""


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that cannot be run on so many nodes of a topology."""

    topology: str
    workload: str
    nodes: int
    why: str


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    kernel: str
    clock: str
    seed: int
    ideal: bool
    ports: tuple[Ports, ...]
    points: tuple[Point, ...]
    crossings: tuple[Crossing, ...]
    misfits: tuple[Misfit, ...]
    warnings: tuple[str, ...]
    ok: bool
    """False: the host was overloaded in a run."""


class Wish(NamedTuple):
    topologies: Sequence[str]
    """`TOPOLOGY` or `TOPOLOGY=WORKLOAD`."""
    workload: str
    compute_ns: Sequence[int]
    """Of a token on one node."""
    settings: Sequence[str] = ()
    tokens: int | None = None
    ideal: bool = False
    seed: int = 1
    memory: str = "1GiB"
    limit_s: float = 60.0


def scale(wish: Wish, choice: Choice, progress: Progress) -> Scaling:
    """Measures each topology at 1, 2, 4 and 8 of its nodes, and searches for WANTED at the most of them.

    A topology that its own port limit refuses is measured without the limit, and `Ports.refused` says so. Raises
    SpecError, and what a run raises.
    """
    ports: list[Ports] = []
    points: list[Point] = []
    crossings: list[Crossing] = []
    misfits: list[Misfit] = []
    results: list[Result] = []
    for number, target in enumerate(wish.topologies):
        file, _, workload = target.partition("=")
        plan, refused = _plan(file, wish)
        ports.append(_ports(plan, file, refused))
        with temporary(
            plan, choice, file=file, memory=wish.memory, seed=wish.seed, ideal=wish.ideal, progress=lambda *_: None
        ) as cluster:

            def step(what: str, number: int = number, topology: str = plan.topology) -> None:
                progress(f"{topology}: {what}", number / len(wish.topologies))

            bench = _Bench(cluster, workload or wish.workload, wish, results)
            largest = 0
            for nodes in COUNTS:
                if nodes > len(plan.computing):
                    break
                try:
                    for compute_ns in wish.compute_ns:
                        step(f"{nodes} nodes, {compute_ns / 1e6:g} ms")
                        points += [bench.point(nodes, mode, compute_ns) for mode in ("strong", "weak")]
                    largest = nodes
                except SpecError as error:
                    misfits.append(Misfit(topology=plan.topology, workload=bench.workload, nodes=nodes, why=str(error)))
            if largest > 1:
                for wanted in WANTED:
                    step(f"{largest} nodes, search for {wanted:.0%}")
                    crossings.append(bench.search(largest, wanted, wish.compute_ns[0]))
    return Scaling(
        kernel=choice.place,
        clock=choice.clock,
        seed=wish.seed,
        ideal=wish.ideal,
        ports=tuple(ports),
        points=tuple(points),
        crossings=tuple(crossings),
        misfits=tuple(misfits),
        warnings=tuple(dict.fromkeys(chain.from_iterable(result.fidelity.warnings for result in results))),
        ok=all(result.fidelity.ok for result in results),
    )


class _Bench:
    """Runs on one standing cluster."""

    def __init__(self, cluster: Cluster, workload: str, wish: Wish, results: list[Result]) -> None:
        self.cluster, self.wish, self.results = cluster, wish, results
        self.file = workload
        spec = load(resolve("workload", workload), Workload, wish.settings)
        self.workload = spec.name
        self._payload_bytes = spec.payload_bytes
        self._hidden_size = spec.hidden_size

    def point(self, nodes: int, mode: Mode, compute_ns: int) -> Point:
        """Raises SpecError where the workload does not fit so many nodes."""
        tokens = nodes if mode == "weak" else 1
        if nodes == 1:
            # One node has no cable and waits for nobody: its token takes its compute time.
            return self._point(1, mode, compute_ns, compute_ns, 0)
        each_ns = compute_ns if mode == "weak" else compute_ns // nodes
        size = (
            f"hidden_size={tokens * self._hidden_size}"
            if self._hidden_size is not None
            else f"payload={tokens * self._payload_bytes}B"
        )
        names = ", ".join(node.name for node in self.cluster.record.plan.computing[:nodes])
        program = read_program(
            self.cluster.record.plan,
            self.file,
            tokens=self.wish.tokens,
            settings=[*self.wish.settings, f"compute_per_node={each_ns}ns", size, f"nodes=[{names}]"],
        )
        result = measure(self.cluster, program, limit_s=self.wish.limit_s, progress=lambda *_: None)
        self.results.append(result)
        return self._point(
            nodes, mode, compute_ns, round(result.token_time_ns.mean), round(result.communication_time_ns.mean)
        )

    def _point(self, nodes: int, mode: Mode, compute_ns: int, step_ns: int, communication_ns: int) -> Point:
        tokens = nodes if mode == "weak" else 1
        return Point(
            topology=self.cluster.record.plan.topology,
            workload=self.workload,
            nodes=nodes,
            mode=mode,
            compute_time_ns=compute_ns,
            step_time_ns=step_ns,
            communication_time_ns=communication_ns,
            tokens_per_second=tokens * 1e9 / step_ns,
            efficiency=tokens * compute_ns / (nodes * step_ns),
        )

    def search(self, nodes: int, wanted: float, first_ns: int) -> Crossing:
        """The compute time at which strong efficiency is `wanted`, by runs: each next one assumes that what a token
        takes beyond its ideal time stays as it was in the run before."""
        compute_ns = first_ns
        for _ in range(MAX_RUNS):
            point = self.point(nodes, "strong", compute_ns)
            if abs(point.efficiency - wanted) <= TOLERANCE:
                break
            beyond_ns = point.step_time_ns - compute_ns // nodes
            compute_ns = round(nodes * beyond_ns * wanted / (1 - wanted))
        return Crossing(
            topology=point.topology,
            workload=point.workload,
            nodes=nodes,
            wanted=wanted,
            compute_time_ns=point.compute_time_ns,
            efficiency=point.efficiency,
            sensible=SENSIBLE_NS[0] <= point.compute_time_ns <= SENSIBLE_NS[1],
        )


def _plan(file: str, wish: Wish) -> tuple[Plan, bool]:
    """The plan, and whether its port limit refuses it."""
    cluster = f"scale-{os.getpid()}"
    try:
        return read_plan(file, cluster=cluster, seed=wish.seed, ideal=wish.ideal), False
    except PortLimitError:
        return read_plan(file, cluster=cluster, seed=wish.seed, ideal=wish.ideal, ignore_ports=True), True


def _ports(plan: Plan, file: str, refused: bool) -> Ports:
    topology = load(resolve("topology", file), Topology)
    limited = {
        name
        for entry in topology.nodes
        for name, ports in entry.interconnects.items()
        if ports.usable_ports is not None
    }
    taken = Counter(
        (end.node, cable.interconnect)
        for cable in plan.cables
        if cable.interconnect in limited
        for end in (cable.a, cable.b)
    )
    most = max(taken.values(), default=0)
    return Ports(
        topology=plan.topology,
        cables=len(plan.cables),
        ports=most,
        refused=refused,
        fits={str(limit): most <= limit for limit in LIMITS},
    )


def check(wish: Wish) -> None:
    """Raises UsageError for a compute time of nothing, of which nothing scales."""
    if not wish.compute_ns or min(wish.compute_ns) < max(COUNTS):
        raise UsageError("--compute is too short to be divided among nodes; write for example --compute 20ms")
