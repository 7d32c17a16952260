"""A cluster in the host's own kernel: real clock, root and sch_netem needed."""

import os
from pathlib import Path

from emulator import state
from emulator.errors import UsageError
from emulator.fabric.apply import apply
from emulator.fabric.change import change
from emulator.fabric.enter import enter
from emulator.fabric.inspect import CableState, inspect
from emulator.fabric.journal import Journal
from emulator.fabric.probe import Ask, Found, probe
from emulator.fabric.reshape import reshape
from emulator.place.cluster import Order, Progress
from emulator.plan.event import TimedPlan
from emulator.plan.model import Plan
from emulator.state import Record
from emulator.workload.program import Program
from emulator.workload.recording import Recording
from emulator.workload.run import run


class HostCluster:
    """Its namespaces are those of /run/netns; programs in it are ordinary processes of the host."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.directory = state.cluster_directory(record.name)

    def make(self, journal: Journal, progress: Progress) -> None:
        """Make the plan true."""
        apply(self.record.plan, journal, lambda what, done, total: progress(what, done / total))
        with state.translated(hosts_file(self.directory)):
            hosts_file(self.directory).write_text(self.record.plan.hosts_text())

    def exec(self, order: Order) -> int:
        """Become the command: its streams, terminal, signals and exit status are this process's own."""
        node = self.record.plan.node(order.node)
        enter(node.name, node.namespace, hosts_file(self.directory))
        try:
            os.execvp(order.argv[0], order.argv)
        except OSError as error:
            raise UsageError(f"{order.argv[0]}: {error.strerror}") from None

    def run(
        self, program: Program, progress: Progress, limit_s: float, events: tuple[TimedPlan, ...] = ()
    ) -> Recording:
        del limit_s  # Real time does not stand still.
        reshape(self.record.plan)
        return run(self.record.plan, program, self.directory / "recording", progress, events)

    def change(self, before: Plan, after: Plan, everything: bool) -> None:
        change(before, after, everything)

    def probe(self, ask: Ask, progress: Progress, limit_s: float) -> list[Found]:
        del limit_s
        return probe(self.record.plan, ask, progress)

    def inspect(self) -> tuple[CableState, ...]:
        return inspect(self.record.plan)

    def pids(self) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        pass


def hosts_file(directory: Path) -> Path:
    """What stands at /etc/hosts inside the nodes."""
    return directory / "hosts"
