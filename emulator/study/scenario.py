"""A scenario on a plan: which plan is in force when, and what each event cost the tokens of a run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from emulator.errors import UsageError
from emulator.plan import change
from emulator.plan.event import TimedPlan
from emulator.plan.model import Plan
from emulator.spec.load import load
from emulator.spec.scenario import Event, Scenario
from emulator.spec.shipped import resolve
from emulator.spec.units import DURATION
from emulator.workload.program import Program
from emulator.workload.recording import Recording
from emulator.workload.result import EventResult
from emulator.workload.summarise import token_times

if TYPE_CHECKING:
    import numpy as np

RECOVERED = 1.05
"""A token has its usual time again where it takes at most this many times the median before the first event."""


def read_events(file: str, plan: Plan, built: Plan | None = None) -> tuple[TimedPlan, ...]:
    """The events of a scenario, given as a file or by the name of a shipped one, on the plan in force.

    Raises SpecError for a file that is wrong, or that names a cable that the plan has not.
    """
    scenario = load(resolve("scenario", file), Scenario)
    found: list[TimedPlan] = []
    now = plan
    for number, event in enumerate(scenario.events):
        try:
            now = _after(event, now, plan, built or plan)
        except UsageError as error:
            raise scenario.error([(("events", number, "a"), str(error))]) from None
        found.append(TimedPlan(at_ns=event.at, plan=now, what=_words(event)))
    return tuple(found)


def costs(events: Sequence[TimedPlan], program: Program, recording: Recording) -> tuple[EventResult, ...]:
    """What each event cost: the tokens from its time to the next event's, against those before the first event.

    Times are on the run's clock, from the common start.
    """
    import numpy as np

    starts, ends = (stamps - recording.start_ns for stamps in token_times(recording, program))
    took = ends - starts
    usual = _median(took[ends <= events[0].at_ns])
    results = []
    for number, event in enumerate(events):
        until = events[number + 1].at_ns if number + 1 < len(events) else int(ends[-1]) + 1
        touched = (ends > event.at_ns) & (ends <= max(until, event.at_ns))
        well = np.flatnonzero((starts >= event.at_ns) & (took <= RECOVERED * (usual or 0)))
        results.append(
            EventResult(
                at_ns=event.at_ns,
                what=event.what,
                happened=event.at_ns < int(ends[-1]),
                tokens_before=int((ends <= event.at_ns).sum()),
                tokens_until_next=int(touched.sum()),
                usual_token_time_ns=usual,
                token_time_ns=_median(took[touched]),
                slowest_token_ns=int(took[touched].max()) if touched.any() else None,
                recovered_after_ns=int(ends[well[0]]) - event.at_ns if well.size else None,
            )
        )
    return tuple(results)


def _median(took: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> int | None:
    import numpy as np

    return int(np.percentile(took, 50, method="inverted_cdf")) if took.size else None


def _after(event: Event, now: Plan, plan: Plan, built: Plan) -> Plan:
    cables = change.cables_between(now, event.a, event.b, event.plane)
    names = {cable.name for cable in cables}
    sender = event.a if event.one_way else None
    match event.action:
        case "down":
            return change.with_down(now, built, {*now.down, *names})
        case "up":
            return change.with_down(now, built, set(now.down) - names)
        case "reset":
            return change.as_built(now, plan, cables, sender)
        case "set":
            return change.with_values(now, cables, event.values, sender)


def _words(event: Event) -> str:
    way = "to" if event.one_way else "and"
    values = ""
    if event.action == "set":
        values = ": " + ", ".join(f"{key} {value}" for key, value in event.values.items())
    return f"{DURATION.format(event.at)} {event.action} {event.a} {way} {event.b}{values}"
