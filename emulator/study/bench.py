"""Benchmarks: a topology under a workload, on a cluster made for the run or on one that stands."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from emulator.place.choose import Choice
from emulator.place.cluster import Progress
from emulator.place.life import attach, temporary
from emulator.study.measure import Recorded, measure
from emulator.study.prepare import memory_for, read_plan, read_program
from emulator.study.scenario import read_events
from emulator.workload.result import Result


class Wish(NamedTuple):
    """What to run, and how."""

    workload: str = "token-exchange"
    tokens: int | None = None
    settings: Sequence[str] = ()
    ideal: bool = False
    seed: int = 1
    ignore_ports: bool = False
    force: bool = False
    cpu_speed: float | None = None
    memory: str = "1GiB"
    limit_s: float = 60.0
    scenario: str | None = None
    """A file, or the name of a shipped one: what happens to the cables meanwhile."""


def bench_topology(
    file: str, choice: Choice, wish: Wish, progress: Progress, recorded: Recorded | None = None
) -> Result:
    """Build the cluster of a topology, measure, take it down."""
    plan = read_plan(
        file,
        cluster=f"bench-{os.getpid()}",
        ignore_ports=wish.ignore_ports,
        force=wish.force,
        seed=wish.seed,
        cpu_speed=wish.cpu_speed,
        ideal=wish.ideal,
    )
    program = read_program(plan, wish.workload, tokens=wish.tokens, settings=wish.settings)
    events = read_events(wish.scenario, plan) if wish.scenario else ()
    with temporary(
        plan,
        choice,
        file=file,
        memory=memory_for(program, wish.memory),
        seed=wish.seed,
        ideal=wish.ideal,
        progress=progress,
    ) as cluster:
        return measure(cluster, program, limit_s=wish.limit_s, progress=progress, recorded=recorded, events=events)


def bench_cluster(name: str, wish: Wish, progress: Progress, recorded: Recorded | None = None) -> Result:
    """Measure on a cluster that stands, as it stands."""
    cluster = attach(name)
    record = cluster.record
    program = read_program(record.plan, wish.workload, tokens=wish.tokens, settings=wish.settings)
    events = read_events(wish.scenario, record.plan, record.built) if wish.scenario else ()
    return measure(cluster, program, limit_s=wish.limit_s, progress=progress, recorded=recorded, events=events)
