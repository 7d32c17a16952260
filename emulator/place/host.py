"""A cluster in the host's own kernel: real clock, root and sch_netem needed."""

import os
from pathlib import Path

from emulator import state
from emulator.errors import UsageError
from emulator.fabric.apply import apply
from emulator.fabric.enter import enter
from emulator.fabric.inspect import CableState, inspect
from emulator.fabric.journal import Journal
from emulator.place.cluster import Order, Progress
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
        if any(node.cpu_speed for node in self.record.plan.nodes):
            raise UsageError("cpu_speed charges computing to the virtual clock, and the host's kernel has none")
        apply(self.record.plan, journal, lambda what, done, total: progress(what, done / total))
        with state.translated(hosts_file(self.directory)):
            hosts_file(self.directory).write_text(hosts(self.record))

    def exec(self, order: Order) -> int:
        """Become the command: its streams, terminal, signals and exit status are this process's own."""
        if order.cpu_speed:
            raise UsageError("--cpu-speed charges computing to the virtual clock, and the host's kernel has none")
        node = self.record.plan.node(order.node)
        enter(node.name, node.namespace, hosts_file(self.directory))
        try:
            os.execvp(order.argv[0], order.argv)
        except OSError as error:
            raise UsageError(f"{order.argv[0]}: {error.strerror}") from None

    def run(self, program: Program, progress: Progress, limit_s: float) -> Recording:
        del limit_s  # Real time does not stand still.
        return run(self.record.plan, program, self.directory / "recording", progress)

    def inspect(self) -> tuple[CableState, ...]:
        return inspect(self.record.plan)

    def pids(self) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        pass


def hosts_file(directory: Path) -> Path:
    """What stands at /etc/hosts inside the nodes."""
    return directory / "hosts"


def hosts(record: Record) -> str:
    """All nodes' names, as a hosts file has them."""
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in record.plan.hosts.items())]
    return "\n".join(lines) + "\n"
