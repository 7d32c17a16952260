"""Boot the guest kernel as a process of the host, and hold it, let it go on, or wake it."""

import contextlib
import ctypes
import os
import signal
import subprocess
from pathlib import Path
from typing import Literal

from emulator import linux
from emulator.errors import GuestError

Clock = Literal["virtual", "real"]

_ADDR_NO_RANDOMIZE = 0x0040000
"""Of personality(2): what memory the guest has depends on where its heap begins, and equal runs need equal memory."""
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "GLIBC_TUNABLES": "glibc.pthread.rseq=0"}
"""The guest's processes do not have the memory that glibc registers for restartable sequences."""


def boot(
    kernel: Path,
    init: Path,
    serial: tuple[int, int],
    *,
    clock: Clock,
    memory: str,
    console: Path,
    parameters: tuple[str, ...] = (),
) -> "subprocess.Popen[bytes]":
    """Start the kernel with the host's file tree as its read-only root and `init` as its first process.

    `serial`: descriptors (one may be both) that are /dev/ttyS0 inside: what it reads, what it writes. `memory`: as
    `512M`; taken from the host only as it is used. `console`: file for what the kernel and init's standard output
    print. `parameters`: more of the kernel's command line, as `syscall-ns=100`.

    The process leads a session and a process group of its own, runs on one CPU (its parts hand over to each other:
    across CPUs that takes three times as long) and dies with the thread that called this. Raises GuestError.
    """
    command = [
        str(kernel),
        f"mem={memory}",
        *(("time-travel=inf-cpu",) if clock == "virtual" else ()),
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        f"init={init}",
        "con=null",
        "con0=null,fd:1",
        "ssl=null",
        f"ssl0=fd:{serial[0]},fd:{serial[1]}",
        "quiet",
        *parameters,
    ]
    if spaced := next((word for word in command[1:] if len(word.split()) != 1), None):
        raise GuestError(
            f"the guest kernel's command line cannot hold {spaced!r}: it has a space; use another directory"
        )
    parent = os.getpid()

    def prepare() -> None:
        linux.set_parent_death_signal(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[os.getpid() % len(cpus)]})
        # Some containers forbid it; then only the size of the guest's memory varies.
        ctypes.CDLL(None).personality(ctypes.c_ulong(_ADDR_NO_RANDOMIZE))

    try:
        with console.open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=tuple(set(serial)),
                env=_ENVIRONMENT,
                start_new_session=True,
                preexec_fn=prepare,
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise GuestError(f"the guest kernel {kernel} cannot be started: {error}; run: emu kernel build") from error


def stop(pid: int) -> None:
    """Hold the guest and all that computes in it: no CPU is used, virtual time stands still. `pid`: of its kernel."""
    _signal(pid, signal.SIGSTOP)


def resume(pid: int) -> None:
    """Let a guest that `stop` holds go on."""
    _signal(pid, signal.SIGCONT)


def nudge(pid: int) -> None:
    """Have the kernel look at its serial line again, and give the processor to whoever is to go first.

    A byte on the serial line does the same by itself.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGIO)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)
