"""Serving: a schedule of requests under continuous and static batching, on step times that are measured.

Each size of step that occurs is run once on the cluster, with its compute time and its messages; the schedule is then
played on those times.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from emulator.errors import SpecError, WorkloadError
from emulator.place.choose import Choice
from emulator.place.cluster import Cluster, Progress
from emulator.place.life import temporary
from emulator.plan.model import Plan
from emulator.spec.load import load
from emulator.spec.model import BITS_UNIT, DECODE_EFFICIENCY, NS_PER_S, Model
from emulator.spec.shipped import resolve
from emulator.spec.workload import Workload
from emulator.study.batching import BATCHINGS, Batching, Played, Server, play
from emulator.study.engine import find
from emulator.study.measure import measure
from emulator.study.prepare import read_plan
from emulator.study.requests import Request
from emulator.workload.program import program
from emulator.workload.result import Spread
from emulator.workload.summarise import spread

ENGINES = ("exo-tensor", "mlx-ring")
"""Those whose nodes all work on one step at once, with messages in proportion to its tokens."""
FLOPS = 20e12
"""Operations per second that a node reaches on prompts and large batches; assumed, not measured."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One size of step, as measured."""

    tokens: int
    sequences: int
    payload_bytes: int
    """Of each all-reduce."""
    compute_time_ns: int
    """On each node."""
    step_time_ns: int
    runs: int = 1
    """How often the schedules took it."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one way of batching made of the requests. Durations are in nanoseconds."""

    batching: Batching
    tokens_per_second: float
    """Output tokens, from the first arrival to the last end."""
    requests_per_second: float
    time_to_first_token_ns: Spread
    time_per_output_token_ns: Spread
    """Of each request of two tokens or more: from its first token to its last, over the tokens between."""
    latency_ns: Spread
    """From arrival to last token."""
    steps: int
    mean_batch: float
    """Sequences in a step that still needed a token."""


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    topology: str
    model: str
    engine: str
    nodes: int
    kernel: str
    clock: str
    seed: int
    ideal: bool
    requests: int
    prompt_tokens: int
    output_tokens: int
    """Of all requests."""
    max_batch: int
    draft_tokens: int
    acceptance: float
    steps: tuple[Step, ...]
    outcomes: tuple[Outcome, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    ok: bool
    """False: the host was overloaded in a run."""


class Wish(NamedTuple):
    topology: str
    model: str
    server: Server
    engine: str = ENGINES[0]
    efficiency: float = DECODE_EFFICIENCY
    flops: float = FLOPS
    """Of one node."""
    ideal: bool = False
    seed: int = 1
    ignore_ports: bool = False
    memory: str = "1GiB"
    limit_s: float = 60.0


def serve(wish: Wish, requests: Sequence[Request], choice: Choice, progress: Progress) -> Serving:
    """Plays `requests` under both ways of batching. Raises SpecError, and what a run raises."""
    plan = read_plan(
        wish.topology,
        cluster=f"serve-{os.getpid()}",
        ignore_ports=wish.ignore_ports,
        seed=wish.seed,
        ideal=wish.ideal,
    )
    model = load(resolve("model", wish.model), Model)
    context = sum(r.prompt_tokens + r.output_tokens // 2 for r in requests) // len(requests)
    _check(plan, model, wish, context)
    with temporary(
        plan,
        choice,
        file=wish.topology,
        memory=wish.memory,
        seed=wish.seed,
        ideal=wish.ideal,
        progress=lambda *_: None,
    ) as cluster:
        steps = _Steps(cluster, model, wish, context, progress)
        played = {how: play(how, requests, wish.server, steps.time_ns) for how in BATCHINGS}
    return Serving(
        topology=plan.topology,
        model=model.name,
        engine=wish.engine,
        nodes=len(plan.computing),
        kernel=choice.place,
        clock=choice.clock,
        seed=wish.seed,
        ideal=wish.ideal,
        requests=len(requests),
        prompt_tokens=sum(request.prompt_tokens for request in requests),
        output_tokens=sum(request.output_tokens for request in requests),
        max_batch=wish.server.max_batch,
        draft_tokens=wish.server.speculation.draft_tokens,
        acceptance=wish.server.speculation.acceptance,
        steps=tuple(step for _, step in sorted(steps.measured.items())),
        outcomes=tuple(_outcome(how, one) for how, one in played.items()),
        assumptions=_assumptions(model, wish, context),
        warnings=tuple(dict.fromkeys(steps.warnings)),
        ok=steps.ok,
    )


def step_compute_ns(model: Model, tokens: int, sequences: int, context: int, wish: Wish, bandwidth: int) -> int:
    """Time in which one node of `bandwidth` bytes/s would compute a step alone: weights once, keys and values of
    `context` tokens for each sequence; no less than two operations for each active parameter and token take."""
    read = read_bytes(model, tokens) + sequences * context * model.kv_bytes
    return round(max(read / (bandwidth * wish.efficiency), 2 * model.active * tokens / wish.flops) * NS_PER_S)


def read_bytes(model: Model, tokens: int) -> float:
    """Bytes of weights that a step of `tokens` reads: each expert once that any of them is routed to, evenly drawn."""
    if not model.experts:
        return model.read_bytes
    share = model.experts_per_token / model.experts
    # One token reads `share` of the routed experts; what it does not read is the rest of them.
    routed = (model.parameters - model.active) / (1 - share) if share < 1 else 0.0
    more = routed * ((1 - (1 - share) ** tokens) - share)
    return model.read_bytes + more * model.precision.experts / (8 * BITS_UNIT)


class _Steps:
    """Step times by size, measured when they are first asked for."""

    def __init__(self, cluster: Cluster, model: Model, wish: Wish, context: int, progress: Progress) -> None:
        self.cluster, self.model, self.wish, self.context, self.progress = cluster, model, wish, context, progress
        self.measured: dict[tuple[int, int], Step] = {}
        self.warnings: list[str] = []
        self.ok = True

    def time_ns(self, tokens: int, sequences: int) -> int:
        step = self.measured.get((tokens, sequences))
        step = self._run(tokens, sequences) if step is None else msgspec.structs.replace(step, runs=step.runs + 1)
        self.measured[tokens, sequences] = step
        return step.step_time_ns

    def _run(self, tokens: int, sequences: int) -> Step:
        self.progress(f"step {len(self.measured) + 1}: {tokens} tokens", 0.0)
        plan = self.cluster.record.plan
        members = plan.computing
        split = find(self.wish.engine).split(self.model, tuple(node.memory_bytes for node in members))
        bandwidth = min(node.memory_bandwidth_bytes_per_s for node in members)
        alone = step_compute_ns(self.model, tokens, sequences, self.context, self.wish, bandwidth)
        # A compute time is cut into one part before each all-reduce.
        each = alone // len(members) // split.collectives * split.collectives
        workload = Workload.model_validate(
            {
                "name": f"{self.wish.engine}, {self.model.name}, {tokens} tokens",
                "description": "One step of a server.",
                "pattern": split.pattern,
                "parameters": split.parameters,
                "payload": f"{tokens * split.payload_bytes}B",
                "compute_per_node": f"{each}ns",
                "tokens": 1,
                "warmup_tokens": 0,
            }
        )
        try:
            result = measure(self.cluster, program(plan, workload), limit_s=self.wish.limit_s, progress=lambda *_: None)
        except WorkloadError as error:
            raise WorkloadError(f"a step of {tokens} tokens: {error}") from None
        self.warnings += result.fidelity.warnings
        self.ok &= result.fidelity.ok
        return Step(
            tokens=tokens,
            sequences=sequences,
            payload_bytes=tokens * split.payload_bytes,
            compute_time_ns=result.compute_time_ns,
            step_time_ns=round(result.token_time_ns.mean),
        )


def _check(plan: Plan, model: Model, wish: Wish, context: int) -> None:
    if wish.engine not in ENGINES:
        find(wish.engine)
        raise SpecError(f"engine {wish.engine} does not batch as one step of all nodes; take {', '.join(ENGINES)}")
    for node in plan.computing:
        if not node.memory_bandwidth_bytes_per_s:
            raise SpecError(
                f"topology {plan.topology}: node {node.name} has no memory bandwidth, from which compute time comes; "
                "write for example `memory_bandwidth: 819GB/s`"
            )
    need = model.weight_bytes + wish.server.max_batch * context * model.kv_bytes
    memory = sum(node.memory_bytes for node in plan.computing)
    if all(node.memory_bytes for node in plan.computing) and need > memory:
        raise SpecError(
            f"{model.name} with {wish.server.max_batch} sequences takes {need / 1e9:,.1f} GB, and {plan.topology} has "
            f"{memory / 1e9:,.1f} GB; take more nodes, a smaller --max-batch, or a card with fewer bits"
        )


def _outcome(batching: Batching, played: Played) -> Outcome:
    import numpy as np

    served = played.served
    tokens = sum(one.request.output_tokens for one in served)
    seconds = (max(one.end_ns for one in served) - min(one.request.arrival_ns for one in served)) / 1e9
    between = [
        (one.end_ns - one.first_ns) // (one.request.output_tokens - 1)
        for one in served
        if one.request.output_tokens > 1
    ]
    return Outcome(
        batching=batching,
        tokens_per_second=tokens / seconds,
        requests_per_second=len(served) / seconds,
        time_to_first_token_ns=spread(np.array([one.first_ns - one.request.arrival_ns for one in served])),
        time_per_output_token_ns=spread(np.array(between or [0])),
        latency_ns=spread(np.array([one.end_ns - one.request.arrival_ns for one in served])),
        steps=played.steps,
        mean_batch=played.filled,
    )


def _assumptions(model: Model, wish: Wish, context: int) -> tuple[str, ...]:
    speculation = wish.server.speculation
    found = [
        "step times: each size that occurs was run once on the cluster; the schedule was then played on them",
        f"compute of a step: weights read once, at {wish.efficiency:.0%} of memory bandwidth, shared evenly by the "
        f"nodes; keys and values of {context} tokens (the mean) for each sequence; at least 2 operations for each "
        f"active parameter and token at {wish.flops / 1e12:g}e12 operations/s of each node",
        "prompts go first, one after the other, and hold up those that generate; the last piece is filled up to a "
        "multiple of 16 tokens",
        "static: a batch is what waits when the last one has ended; tokens are handed out as they are made",
    ]
    if model.experts:
        found.append("experts are drawn evenly, each read once in a step")
    if speculation.draft_tokens:
        found.append(
            f"speculative decoding: {speculation.draft_tokens} tokens drafted in {speculation.draft_ns / 1e6:g} ms "
            f"each, each accepted with probability {speculation.acceptance:g} if those before it were"
        )
    return tuple(found)
