"""Whether the figures of a run on the real clock are to be trusted. The virtual clock does not notice a busy host."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from emulator.workload.result import Fidelity

if TYPE_CHECKING:
    from emulator.workload.program import Program
    from emulator.workload.recording import Recording

MAX_OTHERS_SHARE = 0.25
"""Of all processors' time, spent by programs that are not the run."""
MAX_STEAL_SHARE = 0.01
"""Of all processors' time, taken by the hypervisor for other machines."""
MAX_WAIT_SHARE = 0.05
"""Of the run's time, that a node's process was ready and had no processor."""
MAX_DELAY_RATIO = 1.25
"""Median exchange delay over what was requested; beyond it, a warning names what this machine adds."""


class HostWatch:
    """Watches the host during a run on the real clock: `with HostWatch() as watch: ...`, then `watch.overload`."""

    def __init__(self, *pids: int) -> None:
        """`pids`: processes that are the run's, besides this one: a guest kernel. Their children count with them."""
        self._pids = pids
        self.overload: tuple[str, ...] = ()
        """Why the run is not to be trusted; known at the end."""

    def __enter__(self) -> HostWatch:
        import psutil

        self._times = psutil.cpu_times()
        self._own = self._own_seconds()
        self._start = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        import psutil

        now, count = psutil.cpu_times(), os.cpu_count() or 1
        available = max(time.monotonic() - self._start, 0.01) * count
        idle = now.idle - self._times.idle + getattr(now, "iowait", 0.0) - getattr(self._times, "iowait", 0.0)
        steal = getattr(now, "steal", 0.0) - getattr(self._times, "steal", 0.0)
        others = max(available - idle - steal - (self._own_seconds() - self._own), 0.0)
        found = []
        if others / available > MAX_OTHERS_SHARE:
            found.append(
                f"other programs used {others / available:.0%} of this host's {count} processors; end them, or use the "
                "virtual clock"
            )
        if steal / available > MAX_STEAL_SHARE:
            found.append(f"the hypervisor took {steal / available:.0%} of this host's time; use the virtual clock")
        self.overload = tuple(found)

    def _own_seconds(self) -> float:
        """CPU time that the run has used."""
        import psutil

        times = os.times()
        seconds = times.user + times.system + times.children_user + times.children_system
        for pid in self._pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                for one in (process, *process.children(recursive=True)):
                    used = one.cpu_times()
                    seconds += used.user + used.system
        return seconds


def judge(
    program: Program,
    recording: Recording,
    clock: Literal["virtual", "real"],
    delay_ratio: float,
    warnings: Sequence[str],
    overload: Sequence[str],
) -> Fidelity:
    """`delay_ratio`: median exchange delay over requested. On the virtual clock only `warnings` are passed on."""
    if clock == "virtual":
        return Fidelity(ok=True, warnings=tuple(warnings))
    reasons = list(overload)
    duration = max(recording.ended_ns - recording.start_ns, 1)
    for name, node in zip(program.team.nodes, recording.nodes, strict=True):
        if node.waited_ns > MAX_WAIT_SHARE * duration:
            reasons.append(
                f"node {name} was ready and waited for a processor during {node.waited_ns / duration:.0%} of the run; "
                "use fewer nodes, or the virtual clock"
            )
    notes = list(warnings)
    if delay_ratio > MAX_DELAY_RATIO:
        notes.append(
            f"the median exchange took {delay_ratio:.2f} times what was requested: that is this machine's own overhead"
        )
    return Fidelity(ok=not reasons, warnings=(*reasons, *notes))
