"""Guest kernels for tests: the kernel alone, with a script as its first process."""

import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.guest import boot
from emulator.guest.build import build, find_kernel

PROLOGUE = """\
import ctypes, os, signal, socket, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
for path, kind in ("/proc", "proc"), ("/sys", "sysfs"), ("/run", "tmpfs"), ("/dev/shm", "tmpfs"):
    assert libc.mount(kind.encode(), path.encode(), kind.encode(), 0, None) == 0, path
os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
def say(*words): print("SAY", *words, flush=True)
def sh(command): return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout
def parameter(name, value): open(f"/sys/module/time/parameters/{name}", "w").write(str(value))
def power_off(*_):
    sys.stdout.flush()
    libc.reboot(0x4321FEDC)
sys.excepthook = lambda *error: (sys.__excepthook__(*error), power_off())
"""


@pytest.fixture(scope="session")
def kernel() -> Path:
    return find_kernel() or build(None, lambda _what, _share: None)


class Bare:
    """A guest kernel whose first process is a Python script. What the script says comes back as lines."""

    def __init__(self, kernel: Path, directory: Path) -> None:
        self.kernel = kernel
        self.directory = directory
        self.console = directory / "console"
        self.started: list[subprocess.Popen[bytes]] = []
        self.line, self.theirs = socket.socketpair()

    def start(self, script: str, *parameters: str, clock: boot.Clock = "virtual") -> "subprocess.Popen[bytes]":
        """Boot with a script as init; `self.line` is the other end of its /dev/ttyS0."""
        program = self.directory / "program.py"
        program.write_text(PROLOGUE + textwrap.dedent(script) + "\npower_off()\n")
        init = self.directory / "init"
        init.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S {program}\n")
        init.chmod(0o755)
        self.console.unlink(missing_ok=True)
        guest = boot.boot(
            self.kernel,
            init,
            (self.theirs.fileno(), self.theirs.fileno()),
            clock=clock,
            memory="512M",
            console=self.console,
            parameters=parameters,
        )
        self.started.append(guest)
        return guest

    def said(self) -> list[str]:
        """What the script has said so far."""
        lines = self.console.read_text(errors="replace").splitlines()
        return [line.partition(" ")[2].strip() for line in lines if line.startswith("SAY ")]

    def run(self, script: str, *parameters: str, clock: boot.Clock = "virtual", timeout: float = 60) -> list[str]:
        """Boot, let the script end, and return what it said."""
        guest = self.start(script, *parameters, clock=clock)
        try:
            status = guest.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the guest did not end:\n{self.console.read_text(errors='replace')}")
        assert status == 0, self.console.read_text(errors="replace")
        said = self.said()
        assert "Traceback" not in self.console.read_text(errors="replace"), self.console.read_text(errors="replace")
        return said

    def until(self, count: int, timeout: float = 20) -> list[str]:
        """Wait until the script has said `count` lines."""
        late = time.monotonic() + timeout
        while time.monotonic() < late:
            if len(said := self.said()) >= count:
                return said
            time.sleep(0.02)
        pytest.fail(f"{count} lines were expected:\n{self.console.read_text(errors='replace')}")

    def end(self) -> None:
        for guest in self.started:
            if guest.poll() is None:
                guest.kill()
            guest.wait()
        self.line.close()
        self.theirs.close()


@pytest.fixture
def bare(kernel: Path, tmp_path: Path) -> Iterator[Bare]:
    guest = Bare(kernel, tmp_path)
    yield guest
    guest.end()


def cpu_seconds(group: int) -> float:
    """CPU time that the processes of a process group have used."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
