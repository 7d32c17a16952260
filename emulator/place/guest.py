"""A cluster inside a guest kernel: virtual or real clock, no privilege needed."""

from pathlib import Path

import msgspec

from emulator import state
from emulator.errors import PlaceError, UsageError
from emulator.fabric.inspect import CableState
from emulator.fabric.journal import Journal, ProcessEntry, start_time
from emulator.fabric.probe import Ask, Found
from emulator.guest.build import find_kernel
from emulator.guest.client import Client, connect
from emulator.guest.launch import launch
from emulator.place.cluster import Order, Progress
from emulator.plan.event import TimedPlan
from emulator.plan.event import encode as encode_events
from emulator.plan.model import Plan
from emulator.spec.units import BYTES
from emulator.state import Record
from emulator.workload.program import Program
from emulator.workload.program import encode as encode_program
from emulator.workload.recording import Recording

SMALLEST_MEMORY = 256 << 20
LARGEST_MEMORY = 64 << 30
"""Bytes of a guest's memory; the host gives only what is used."""


class GuestCluster:
    """Its namespaces are inside the guest; the host sees a supervisor and what belongs to it."""

    def __init__(self, record: Record, client: Client) -> None:
        self.record = record
        self.client = client
        self.directory = state.cluster_directory(record.name)

    @classmethod
    def make(cls, record: Record, journal: Journal, memory: str, progress: Progress) -> "GuestCluster":
        """Boot a guest and make the plan true in it."""
        kernel = find_kernel()
        if kernel is None:
            raise PlaceError("the guest kernel is not built; run: emu kernel build")
        progress("booting the guest", 0.0)
        client = launch(
            state.cluster_directory(record.name),
            kernel=kernel,
            clock=record.clock,
            memory=_megabytes(memory),
            pace=record.pace,
            started=lambda pid: journal.write(
                [ProcessEntry(purpose="supervisor", pid=pid, start_time=start_time(pid))]
            ),
        )
        client.apply(record.plan, progress)
        return cls(record, client)

    @classmethod
    def attach(cls, record: Record) -> "GuestCluster":
        """The guest of a cluster that stands."""
        return cls(record, connect(state.cluster_directory(record.name)))

    def exec(self, order: Order) -> int:
        return self.client.exec(
            order.node,
            order.argv,
            terminal=order.terminal,
            writable=[Path(directory) for directory in order.writable],
            cpu_speed=order.cpu_speed,
            limit=order.limit_s,
        )

    def run(
        self, program: Program, progress: Progress, limit_s: float, events: tuple[TimedPlan, ...] = ()
    ) -> Recording:
        path = self.directory / "recording"
        try:
            self.client.run(encode_program(program), path, progress, limit_s, encode_events(events) if events else b"")
            return Recording.load(path)
        finally:
            path.unlink(missing_ok=True)

    def change(self, before: Plan, after: Plan, everything: bool) -> None:
        del before  # The agent holds it.
        self.client.change(after, everything)

    def probe(self, ask: Ask, progress: Progress, limit_s: float) -> list[Found]:
        found = self.client.probe(msgspec.json.encode(ask), progress, limit_s)
        return msgspec.json.decode(found, type=list[Found])

    def inspect(self) -> tuple[CableState, ...]:
        return msgspec.json.decode(self.client.inspect(), type=tuple[CableState, ...])

    def pids(self) -> tuple[int, ...]:
        return (self.client.status().pid,)

    def close(self) -> None:
        pass


def _megabytes(memory: str) -> str:
    """`1GiB` as the kernel's mem= takes it. Raises UsageError."""
    try:
        size = BYTES.parse(memory)
    except ValueError as error:
        raise UsageError(f"--memory: {error}") from None
    if not SMALLEST_MEMORY <= size <= LARGEST_MEMORY:
        raise UsageError(f"--memory {memory} is out of bounds; write 256MiB to 64GiB")
    return f"{size >> 20}M"
