"""Plans that come into force at their times while a workload runs."""

from collections.abc import Sequence

import msgspec

from emulator.plan.model import Plan


class TimedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """From `at_ns` after the common start of a run on, `plan` is in force."""

    at_ns: int
    plan: Plan
    what: str
    """The event, as a person would say it."""


def encode(events: Sequence[TimedPlan]) -> bytes:
    """The events as one line of JSON."""
    return msgspec.json.encode(events)


def decode(data: bytes) -> tuple[TimedPlan, ...]:
    """The events that `encode` wrote. Raises msgspec.ValidationError on anything else."""
    return msgspec.json.decode(data, type=tuple[TimedPlan, ...])
