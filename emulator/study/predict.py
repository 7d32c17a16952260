"""Predictions: what an engine reaches with a model on a topology, measured by running its pattern."""

import contextlib
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, NamedTuple, Self

import msgspec
import numpy as np

from emulator.errors import SpecError
from emulator.place.choose import Choice
from emulator.place.cluster import Cluster, Progress
from emulator.place.life import temporary
from emulator.plan.model import Plan
from emulator.spec.load import load
from emulator.spec.model import DECODE_EFFICIENCY, Model
from emulator.spec.shipped import resolve
from emulator.study import engine as engines
from emulator.study.fit import fit_cost
from emulator.study.measure import measure
from emulator.study.prepare import read_plan
from emulator.study.published import Point
from emulator.workload.program import Program
from emulator.workload.recording import Recording

TOKENS = 10
"""Measured for each figure; without jitter, all are equal but for their place in the recording."""


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Payload bytes of a node for each token, as its send and receive calls counted them."""

    sent: int
    received: int


Figure = Literal["efficiency", "free cost", "efficiency, free cost"]


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """A published point that a figure was fitted on, and what a run with the fit gave."""

    point: str
    figure: Figure
    published_tokens_per_second: float
    tokens_per_second: float
    error: float
    """Of tokens/s, as a share of what was published."""
    source: str


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What `emu predict --json` prints."""

    engine: str
    model: str
    topology: str
    nodes: int
    tokens_per_second: float
    token_time_ns: int
    """Median of the measured tokens."""
    compute_time_ns: int
    """Modelled: weights read over memory bandwidth, on the critical path."""
    communication_time_ns: int
    """The rest of the token: what the run measured, and the free cost in it."""
    free_cost_ns: int
    free_cost_per: engines.Per
    efficiency: float
    bytes_per_token: dict[str, Traffic]
    fitted: tuple[Fitted, ...]
    assumptions: tuple[str, ...]
    kernel: str
    clock: str


class Ask(NamedTuple):
    """What is to be predicted."""

    engine: str
    model: str
    topology: str
    nodes: int | None = None
    """The first so many; None: all."""
    context: int = 0
    efficiency: float | None = None
    """None: fitted where a point allows, else `DECODE_EFFICIENCY`."""
    free_cost_ns: int | None = None
    """None: fitted where a point allows, else 0."""
    cost_per: engines.Per | None = None
    """None: as the engine has it."""


class Run(NamedTuple):
    """One measured run of a pattern."""

    token_ns: float
    compute_ns: int
    traffic: dict[str, Traffic]
    assumptions: tuple[str, ...]


class Laboratory:
    """Clusters for predictions: one of each topology, made when it is first needed and taken down at the end."""

    def __init__(self, choice: Choice, progress: Progress, *, ideal: bool = True, limit_s: float = 60.0) -> None:
        self.choice = choice
        self.ideal = ideal
        self.progress = progress
        self._limit_s = limit_s
        self._stack = contextlib.ExitStack()
        self._clusters: dict[str, Cluster] = {}
        self._plans: dict[str, Plan] = {}
        self._runs: dict[tuple[Ask, int, float, int], Run] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, value, trace)

    def plan(self, topology: str) -> Plan:
        """Raises SpecError."""
        if topology not in self._plans:
            name = f"predict-{os.getpid()}-{len(self._plans)}"
            self._plans[topology] = read_plan(topology, cluster=name, ideal=self.ideal)
        return self._plans[topology]

    def run(self, ask: Ask, nodes: int, efficiency: float, free_cost_ns: int) -> Run:
        """Measures a token of `ask` on its first `nodes` nodes, once: on the virtual clock a second run is equal.
        Raises SpecError and what a run raises."""
        key = (ask, nodes, efficiency, free_cost_ns)
        if key not in self._runs:
            self._runs[key] = self._run(*key)
        return self._runs[key]

    def _run(self, ask: Ask, nodes: int, efficiency: float, free_cost_ns: int) -> Run:
        plan, model = self.plan(ask.topology), read_model(ask.model)
        if nodes == 1:
            alone = engines.compute_ns(model, plan, ask.engine, 1, efficiency, ask.context)
            return Run(alone, alone, {plan.computing[0].name: Traffic(sent=0, received=0)}, ("one node sends nothing",))
        job = engines.job(
            ask.engine, model, plan, nodes,
            efficiency=efficiency, context=ask.context, free_cost_ns=free_cost_ns,
            per=ask.cost_per or engines.find(ask.engine).cost_per, tokens=TOKENS,
        )  # fmt: skip
        traffic: dict[str, Traffic] = {}

        def count(program: Program, recording: Recording) -> None:
            traffic.update(count_bytes(program, recording))

        cluster = self._cluster(ask.topology)
        result = measure(cluster, job.program, limit_s=self._limit_s, progress=self.progress, recorded=count)
        return Run(result.token_time_ns.p50, job.compute_ns, traffic, job.split.assumptions)

    def _cluster(self, topology: str) -> Cluster:
        if topology not in self._clusters:
            self._clusters[topology] = self._stack.enter_context(
                temporary(
                    self.plan(topology), self.choice, file=topology, memory="1GiB", seed=1, ideal=self.ideal,
                    progress=self.progress,
                )
            )  # fmt: skip
        return self._clusters[topology]


def predict(lab: Laboratory, ask: Ask, fits: Sequence[Point] = ()) -> Prediction:
    """Runs what is asked for, after fitting what the points `fits` allow. Raises SpecError and what a run raises."""
    plan, per = lab.plan(ask.topology), ask.cost_per or engines.find(ask.engine).cost_per
    nodes = ask.nodes or len(plan.computing)
    if nodes > len(plan.computing):
        raise SpecError(f"topology {plan.topology} has {len(plan.computing)} nodes, not {nodes}; take a larger one")
    for point in fits:
        if point.engine != ask.engine:
            raise SpecError(f"point {point.id} is of {point.engine}, not of {ask.engine}; fit on points of one engine")
        if point.nodes > len(lab.plan(point.topology).computing):
            raise SpecError(f"point {point.id} takes {point.nodes} nodes, more than {point.topology} has")
    efficiency = ask.efficiency or _efficiency(lab, fits)
    costly = [point for point in fits if point.nodes > 1]
    cost = ask.free_cost_ns
    if cost is None:
        cost = fit_cost(costly, lambda point, value: _again(lab, point, efficiency, value, per))
    run = lab.run(ask, nodes, efficiency, cost)
    fitted = [_fitted(point, _again(lab, point, efficiency, cost, per), _figure(point)) for point in fits]
    return Prediction(
        engine=ask.engine,
        model=ask.model,
        topology=plan.topology,
        nodes=nodes,
        tokens_per_second=1e9 / run.token_ns,
        token_time_ns=round(run.token_ns),
        compute_time_ns=run.compute_ns,
        communication_time_ns=round(run.token_ns) - run.compute_ns,
        free_cost_ns=cost,
        free_cost_per=per,
        efficiency=efficiency,
        bytes_per_token=run.traffic,
        fitted=tuple(fitted),
        assumptions=(
            f"each token reads its active weights once, at {efficiency:.1%} of the memory bandwidth"
            + ("" if ask.efficiency or any(p.compute_ns for p in fits) else f" (default: {DECODE_EFFICIENCY:.0%})"),
            f"{ask.context} tokens of context; batch of 1",
            *run.assumptions,
            *(() if cost else (f"no cost per {per} beyond the cables': the host's own work is not in it",)),
            *(("cables without jitter and loss",) if lab.ideal else ()),
        ),
        kernel=lab.choice.place,
        clock=lab.choice.clock,
    )


def read_model(name: str) -> Model:
    """A model card, by name or file. Raises SpecError."""
    return load(resolve("model", name), Model)


def count_bytes(program: Program, recording: Recording) -> dict[str, Traffic]:
    """Payload bytes that each node sent and received for each token. Every token is alike, so the shares are whole."""
    nodes = program.team.nodes
    sent, received = dict.fromkeys(nodes, 0), dict.fromkeys(nodes, 0)
    for index, record in enumerate(recording.nodes):
        for link in record.links:
            ends = program.connections[link.connection]
            messages = len(link.sent_ns) // 8
            size = (
                int(np.frombuffer(link.sizes, dtype="<i8").sum())
                if link.sizes
                else messages * program.team.payload_bytes
            )
            sent[nodes[index]] += size
            received[nodes[ends.b if index == ends.a else ends.a]] += size
    return {
        name: Traffic(sent=sent[name] // program.tokens, received=received[name] // program.tokens) for name in nodes
    }


def _efficiency(lab: Laboratory, fits: Sequence[Point]) -> float:
    """The mean of what the points say whose compute time is known; `DECODE_EFFICIENCY` where there is none."""
    found = [
        engines.compute_ns(read_model(p.model), lab.plan(p.topology), p.engine, p.nodes, 1.0, 0) / p.compute_ns
        for p in fits
        if p.compute_ns
    ]
    return sum(found) / len(found) if found else DECODE_EFFICIENCY


def _again(lab: Laboratory, point: Point, efficiency: float, cost: int, per: engines.Per) -> float:
    """The measured token time of a published point."""
    ask = Ask(point.engine, point.model, point.topology, cost_per=per)
    return lab.run(ask, point.nodes, efficiency, cost).token_ns


def _figure(point: Point) -> Figure:
    if point.nodes == 1:
        return "efficiency"
    return "free cost" if point.compute_ns is None else "efficiency, free cost"


def _fitted(point: Point, token_ns: float, figure: Figure) -> Fitted:
    return Fitted(
        point=point.id,
        figure=figure,
        published_tokens_per_second=1e9 / point.token_ns,
        tokens_per_second=1e9 / token_ns,
        error=round(point.token_ns / token_ns - 1, 6) + 0.0,
        source=point.source,
    )
