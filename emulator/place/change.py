"""Changing a cluster that stands: what is to be is written down first, then made true, then marked as done."""

from collections.abc import Callable

from emulator import state
from emulator.place.life import attach
from emulator.plan.model import Plan
from emulator.state import Record

Wish = Callable[[Plan, Plan], Plan]
"""From the plan in force and the plan as built to the one that is to be."""


def change(name: str, wish: Wish) -> Record:
    """Bring a standing cluster to the plan that `wish` returns.

    A command that is killed in between leaves `Record.changing`; the next change then sets every value of every cable.
    Raises ClusterError where no such cluster is up, and what `wish`, the state and the fabric raise.
    """
    with state.locked(name):
        cluster = attach(name)
        record = cluster.record
        try:
            before, built, unfinished = record.plan, record.built or record.plan, record.changing
            after = wish(before, built)
            if after == before and not unfinished:
                return record
            record.plan, record.built, record.changing = after, built, True
            state.write(record)
            # Where a change was cut short, what stands is not known, so nothing may be left out.
            cluster.change(before, after, unfinished)
            record.changing = False
            if after == built:
                record.built = None
            state.write(record)
        finally:
            cluster.close()
    return record
