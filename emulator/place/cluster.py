"""A standing cluster, wherever it stands: what commands and studies can do with it."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from emulator.fabric.inspect import CableState
from emulator.fabric.probe import Ask, Found
from emulator.plan.event import TimedPlan
from emulator.plan.model import Plan
from emulator.state import Record
from emulator.workload.program import Program
from emulator.workload.recording import Recording

Progress = Callable[[str, float], None]
"""Called with what is being done and the share that is done, 0 to 1."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A command to run in a node, with the caller's streams, directory and environment."""

    node: str
    argv: tuple[str, ...]
    terminal: bool = False
    """Give it a terminal of its own, as a shell needs."""
    cpu_speed: float | None = None
    """In place of the node's own (virtual clock)."""
    writable: tuple[str, ...] = ()
    """Directories of the host that it may write, besides the current one (guest)."""
    limit_s: float = 60.0
    """Seconds of wall time for which virtual time may stand still (guest)."""


class Cluster(Protocol):
    """A cluster that is up."""

    record: Record

    def exec(self, order: Order) -> int:
        """Run a command and return its exit status, 128 + n if signal n ended it."""

    def run(
        self, program: Program, progress: Progress, limit_s: float, events: tuple[TimedPlan, ...] = ()
    ) -> Recording:
        """Run a workload; jitter and loss begin from their seeds, `events` change cables beside it.

        Raises WorkloadError, StalledError, GuestError.
        """

    def change(self, before: Plan, after: Plan, everything: bool) -> None:
        """Go from the plan that stands to another one of the same nodes and cables; `everything`: set all anew."""

    def probe(self, ask: Ask, progress: Progress, limit_s: float) -> list[Found]:
        """Measure both directions of every cable, in the plan's order. Raises FabricError."""

    def inspect(self) -> tuple[CableState, ...]:
        """The cables, read back from the kernel that holds them."""

    def pids(self) -> tuple[int, ...]:
        """Processes that work for its runs, besides the caller and its children."""

    def close(self) -> None:
        """Let go of it; it stays up."""
