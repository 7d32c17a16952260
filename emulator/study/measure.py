"""One measured run: a program on a standing cluster, and the result of it."""

import contextlib
import time
from collections.abc import Callable

from msgspec.structs import replace

from emulator import state
from emulator.place.cluster import Cluster, Progress
from emulator.plan.event import TimedPlan
from emulator.study.scenario import costs
from emulator.workload.fidelity import HostWatch
from emulator.workload.program import Program
from emulator.workload.recording import Recording
from emulator.workload.result import Result
from emulator.workload.summarise import summarise

Recorded = Callable[[Program, Recording], None]
"""Called with the stamps of a run, for who wants more than the result."""

PACKET_ORDER = {
    "guest": "kept: netem in the guest kernel lets no packet overtake another unless reordering is asked for",
    "host": "as this host's netem keeps it: with a rate set, a packet leaves no earlier than the one before it",
}


def measure(
    cluster: Cluster,
    program: Program,
    *,
    limit_s: float,
    progress: Progress,
    recorded: Recorded | None = None,
    events: tuple[TimedPlan, ...] = (),
) -> Result:
    """Run `program` on `cluster`, watch the host if the clock is real, and work out the result.

    `events` change the cables meanwhile; what each cost is in the result.
    """
    record = cluster.record
    if program.protocol:
        program = replace(program, protocol=program.protocol.on(record.clock))
    watch = HostWatch(*cluster.pids()) if record.clock == "real" else None
    with state.alone(record.name):
        before = cluster.inspect()
        started = time.monotonic()
        with watch or contextlib.nullcontext():
            recording = cluster.run(program, progress, limit_s, events)
        wall = time.monotonic() - started
        after = cluster.inspect()
    if recorded:
        recorded(program, recording)
    charged = [node.name for node in record.plan.computing if node.cpu_speed]
    warnings = (
        [f"computing on {', '.join(charged)} is charged: the figures repeat only as well as this host's CPU times do"]
        if charged
        else []
    )
    result = summarise(
        record.plan,
        program,
        recording,
        before=before,
        after=after,
        kernel=record.place,
        clock=record.clock,
        packet_order=PACKET_ORDER[record.place],
        wall_seconds=wall,
        seed=record.seed,
        ideal=record.ideal,
        warnings=warnings,
        overload=watch.overload if watch else (),
    )
    return replace(result, events=costs(events, program, recording)) if events else result
