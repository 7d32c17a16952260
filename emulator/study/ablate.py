"""A protocol taken apart: the design documents' way from TCP to RDMA, step by step, each measured by a run.

The documents say: 3 exchanges a token, 300 us each under TCP and 40 us under RDMA (900 us to 120 us a token), kernel
processing 65 % of the delay; by a user-space path, 256 MB registered before, a reliable connection, and checksums in
hardware. What each of these brings they do not say.
"""

import os
from collections.abc import Sequence
from typing import Literal

import msgspec

from emulator.place.choose import Choice
from emulator.place.cluster import Progress
from emulator.place.life import temporary
from emulator.spec.load import load
from emulator.spec.protocol import Protocol as Written
from emulator.spec.shipped import resolve
from emulator.study.measure import measure
from emulator.study.prepare import memory_for, read_plan, read_program, under
from emulator.workload.protocol import protocol
from emulator.workload.result import Result
from emulator.workload.run import pinned_bytes

DOCUMENTS_FIRST_NS, DOCUMENTS_LAST_NS = 300_000, 40_000
"""Of an exchange, by the documents: under TCP and after all steps."""
DOCUMENTS_KERNEL_SHARE = 0.65
"""Of kernel processing in the delay under TCP, by the documents."""

STEPS = {
    "user-space path": "path=user-space",
    "memory registered once": "registration.when=once",
    "connection kept": "connection.when=kept",
    "checksum in hardware": "checksum.by=hardware",
}
"""What each step changes in the protocol file, in the documents' order."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One bar of the waterfall. Times are medians of a run."""

    name: str
    exchange_delay_ns: int
    """With this step and all before it."""
    token_time_ns: int
    gain_ns: int
    """What it takes off the exchange after the steps before it; 0 for the first row."""
    gain_alone_ns: int
    """What it takes off the first row's exchange by itself."""
    kernel_ns: int
    """Of the exchange, charged for kernels' work."""
    kernel_share: float
    """`kernel_ns` over `exchange_delay_ns`."""
    costs_ns: dict[str, int]
    """What is charged for a message, by the name of the cost; the cable is not in it."""
    once_ns: int
    """Charged to each node once, before the first token: registering memory."""


class Ablation(msgspec.Struct, frozen=True, kw_only=True):
    """The steps from one protocol to another, measured."""

    topology: str
    workload: str
    protocol: str
    kernel: str
    clock: Literal["virtual", "real"]
    steps: tuple[Step, ...]
    documents: dict[str, float]
    """What the design documents say, for comparison."""
    notes: tuple[str, ...]
    """What does not add up, and what was assumed."""
    fidelity_ok: bool
    warnings: tuple[str, ...]
    wall_seconds: float


def ablate(
    topology: str,
    choice: Choice,
    *,
    protocol_name: str,
    tokens: int,
    seed: int,
    memory: str,
    limit_s: float,
    progress: Progress,
) -> Ablation:
    """Measures `token-exchange` on ideal cables of `topology` under each combination of steps. Raises SpecError."""
    plan = read_plan(topology, cluster=f"ablate-{os.getpid()}", seed=seed, ideal=True)
    base = read_program(plan, "token-exchange", tokens=tokens)
    path = resolve("protocol", protocol_name)
    settings = list(STEPS.values())
    in_sequence = [settings[:count] for count in range(len(settings) + 1)]
    # The first step alone is the first of the sequence.
    alone = [[setting] for setting in settings[1:]]
    written = [load(path, Written, chosen) for chosen in (*in_sequence, *alone)]
    results: list[Result] = []
    most = max((under(base, protocol(one)) for one in written), key=pinned_bytes)
    memory = memory_for(most, memory)
    with temporary(plan, choice, file=topology, memory=memory, seed=seed, ideal=True, progress=progress) as cluster:
        for number, one in enumerate(written):
            progress("measuring", number / len(written))
            program = under(base, protocol(one))
            results.append(measure(cluster, program, limit_s=limit_s, progress=lambda _what, _share: None))
    delays = [result.exchange_delay_ns.p50 for result in results]
    first, sequence = delays[0], delays[: len(in_sequence)]
    alone_gains = [0, first - delays[1], *(first - delay for delay in delays[len(in_sequence) :])]
    steps = []
    for number, (name, result) in enumerate(zip([written[0].name, *STEPS], results, strict=False)):
        costs = protocol(written[number]).on(result.clock)
        kernel_ns = costs.kernel_ns(base.team.payload_bytes)
        steps.append(
            Step(
                name=name,
                exchange_delay_ns=sequence[number],
                token_time_ns=result.token_time_ns.p50,
                gain_ns=sequence[number - 1] - sequence[number] if number else 0,
                gain_alone_ns=alone_gains[number],
                kernel_ns=kernel_ns,
                kernel_share=kernel_ns / sequence[number],
                costs_ns=costs.parts(base.team.payload_bytes),
                once_ns=costs.region_ns,
            )
        )
    ways = base.connections[0]
    return Ablation(
        topology=plan.topology,
        workload=base.workload,
        protocol=written[0].name,
        kernel=results[0].kernel,
        clock=results[0].clock,
        steps=tuple(steps),
        documents={
            "first_exchange_ns": DOCUMENTS_FIRST_NS,
            "last_exchange_ns": DOCUMENTS_LAST_NS,
            "kernel_share": DOCUMENTS_KERNEL_SHARE,
        },
        notes=_notes(steps, results[0].clock, ways.a_to_b.delay_ns + ways.b_to_a.delay_ns),
        fidelity_ok=all(result.fidelity.ok for result in results),
        warnings=_warnings(results),
        wall_seconds=sum(result.wall_seconds for result in results),
    )


def _warnings(results: Sequence[Result]) -> tuple[str, ...]:
    """Those of the first run that has some, and how many runs have."""
    warned = [result.fidelity.warnings for result in results if result.fidelity.warnings]
    return (*warned[0], f"so or alike in {len(warned)} of {len(results)} runs") if warned else ()


def _notes(steps: Sequence[Step], clock: str, opening_ns: int) -> tuple[str, ...]:
    """What a reader has to know of the figures."""
    first, last = steps[0], steps[-1]
    kernel_ns = DOCUMENTS_KERNEL_SHARE * DOCUMENTS_FIRST_NS
    sum_ns = kernel_ns + opening_ns + DOCUMENTS_LAST_NS
    other = first.costs_ns.get("other", 0)
    notes = [
        f"the documents' figures: {_us(DOCUMENTS_FIRST_NS)} an exchange under TCP, {_us(DOCUMENTS_LAST_NS)} at the "
        f"end, {DOCUMENTS_KERNEL_SHARE:.0%} of the first in the kernel, and the names and order of the steps; what "
        "each step brings they do not say",
        f"measured: {_us(first.exchange_delay_ns)} at first, {_us(last.exchange_delay_ns)} at the end"
        + (f"; kernel processing is {first.kernel_share:.1%} of the first" if clock == "virtual" else ""),
    ]
    if clock == "real":
        notes.append(
            "on the real clock nothing is charged: each step is really done, and this machine's work is in each figure"
        )
    if steps[1].gain_ns < 0:
        notes.append(
            "the user-space path is slower here: its delivery is written in Python, and the kernel's TCP in C; what a "
            "user-space path on an adapter gains, this machine cannot show"
        )
    if sum_ns > DOCUMENTS_FIRST_NS:
        notes.append(
            f"they do not add up: {DOCUMENTS_KERNEL_SHARE:.0%} of {_us(DOCUMENTS_FIRST_NS)} in the kernel are "
            f"{_us(kernel_ns)}; with {_us(opening_ns)} for opening a connection over these cables and the "
            f"{_us(DOCUMENTS_LAST_NS)} that stay, that is {_us(sum_ns)}, before registration and checksums"
        )
    if other:
        notes.append(
            f"`other`, {_us(other)} or {other / first.exchange_delay_ns:.0%} of the first, is what the documents' "
            "total leaves and no measurement here accounts for"
        )
    if clock == "virtual" and steps[2].gain_alone_ns == 0:
        notes.append("registration costs nothing by itself: only the user-space path needs memory to be registered")
    return tuple(notes)


def _us(nanoseconds: float) -> str:
    return f"{nanoseconds / 1000:,.1f} us"
