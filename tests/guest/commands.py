"""The command line in a process of its own, on a state directory of its own, and what it left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from emulator import errors
from emulator.errors import EmuError

Done = subprocess.CompletedProcess[str]

PAIR = """\
name: pair
description: Two nodes and a cable.
nodes: [{count: 2, prefix: n}]
planes:
  a: {shape: line, profile: thunderbolt5-rdma}
"""

DOCUMENTED = {0, 1, 2, 130} | {
    kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, EmuError)
}
"""Exit codes that `emu --help` lists, but for 70: that one is a fault."""


class Commands:
    """Calls `emu` with its state and its temporary files below `base`."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.state = base / "state"
        self.temp = base / "temp"
        self.temp.mkdir(mode=0o700)
        self.pair = base / "pair.yaml"
        self.pair.write_text(PAIR)
        self.environment = {**os.environ, "EMU_STATE_DIR": str(self.state), "TMPDIR": str(self.temp)}

    def start(self, *words: str, **options: Any) -> "subprocess.Popen[str]":
        """A command under way, in a process group of its own."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True} | options
        environment = self.environment | options.pop("env", {})
        return subprocess.Popen([sys.executable, "-m", "emulator", *words], env=environment, text=True, **options)

    def __call__(self, *words: str, **options: Any) -> Done:
        """A command that has ended."""
        with self.start(*words, **options) as process:
            return ended(process)

    def listed(self) -> dict[str, str]:
        """What `ps` says: the state of each cluster by its name."""
        done = self("ps", "--json")
        assert done.returncode == 0, done.stderr
        return {one["name"]: one["state"] for one in json.loads(done.stdout)}

    def supervisor(self, name: str) -> int:
        """The pid of a standing cluster's supervisor, from its journal."""
        line = (self.state / name / "journal").read_text().splitlines()[0]
        pid = json.loads(line)["pid"]
        assert isinstance(pid, int)
        return pid

    def processes(self) -> dict[int, str]:
        """Processes that have the state directory in their environment, command line or open files, and children of
        such: a guest's own have neither."""
        mark = str(self.state).encode()
        found: dict[int, str] = {}
        parents: dict[int, tuple[int, str]] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            pid = int(entry.name)
            if pid == os.getpid():
                continue
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] in "ZX":
                    continue
                text = (entry / "cmdline").read_bytes()
                parents[pid] = (int(fields[1]), text.decode(errors="replace")[:200])
                opened = [os.readlink(link).encode() for link in (entry / "fd").iterdir()]  # noqa: PTH115
                if any(mark in where for where in (text, (entry / "environ").read_bytes(), *opened)):
                    found[pid] = text.decode(errors="replace")[:200]
            except OSError:
                continue
        while children := {pid: text for pid, (up, text) in parents.items() if up in found and pid not in found}:
            found |= children
        return found

    def nothing_left(self, seconds: float = 10.0) -> None:
        """After `down --all`: no process, no file of the state, no temporary file. A kill takes a moment to be felt."""
        end = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.05)
        assert left == {}, f"left: {left}"
        files = [str(path) for top in (self.state, self.temp) for path in top.rglob("*")]
        assert files == [], f"left: {files}"

    def all_down(self) -> None:
        done = self("down", "--all")
        assert done.returncode == 0, done.stderr
        assert (standing := self.listed()) == {}, standing
        self.nothing_left()


def ended(process: "subprocess.Popen[str]", seconds: float = 100) -> Done:
    """What a command said by its end. Its outcome is one of those documented, or the signal that ended it."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert "Traceback" not in (err or ""), err
    assert "fault of emu" not in (err or ""), err
    words: Sequence[str] = [str(word) for word in process.args] if isinstance(process.args, list) else []
    return subprocess.CompletedProcess(words, process.returncode, out or "", err or "")


@contextmanager
def commands(base: Path) -> Iterator[Commands]:
    """Commands that leave nothing behind: whatever stands at the end is taken down, and nothing may be left then."""
    emu = Commands(base)
    try:
        yield emu
    finally:
        emu.all_down()
