"""Which kernel a cluster stands in, under which clock, and why."""

import os
import platform
from pathlib import Path
from typing import Literal, NamedTuple

from emulator.errors import PlaceError, UsageError
from emulator.fabric.support import netem_support
from emulator.state import Clock, PlaceName

KernelChoice = Literal["auto", "host", "guest"]


class Choice(NamedTuple):
    """Where a cluster will stand. `why` completes the sentence "guest kernel, virtual clock: ..."."""

    place: PlaceName
    clock: Clock
    why: str


def choose(kernel: KernelChoice, clock: Clock | None) -> Choice:
    """Choose a place. Raises PlaceError where the wish cannot be met here, UsageError where it makes no sense."""
    if platform.system() == "Linux" and not Path("/proc/self").is_dir():
        raise PlaceError("/proc is not mounted; as root: mount -t proc proc /proc")
    if kernel == "guest":
        return _guest(clock, "asked for")
    if kernel == "host":
        if clock == "virtual":
            raise UsageError("the host's kernel has no virtual clock; leave out --clock virtual or use --kernel guest")
        if reason := host_cannot():
            raise PlaceError(f"the host's kernel cannot be used: {reason}; use --kernel guest")
        return Choice("host", "real", "asked for")
    if clock == "virtual":
        return _guest(clock, "only the guest has a virtual clock")
    if reason := host_cannot():
        return _guest(clock, reason)
    return Choice("host", "real", "root, and this kernel has netem")


def host_cannot() -> str | None:
    """Why the host's kernel cannot hold a cluster; None if it can."""
    if platform.system() != "Linux":
        return f"this is {platform.system()}, not Linux"
    if os.geteuid() != 0:
        return "not root"
    if netem_support() == "absent":
        return "this kernel has no sch_netem"
    return None


def guest_cannot() -> str | None:
    """Why no guest kernel can run on this host; None if it can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return (
            f"user-mode Linux runs on x86-64 Linux hosts only, and this is {platform.system()} on {platform.machine()}"
        )
    return None


def _guest(clock: Clock | None, why: str) -> Choice:
    if reason := guest_cannot():
        raise PlaceError(f"the guest kernel cannot run here: {reason}")
    return Choice("guest", clock or "virtual", why)
