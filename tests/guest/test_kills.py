"""Kills, full disks and lost records: the next `ps` tells the truth, `down` cleans up, `up` works again."""

import errno
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator.fabric.journal import start_time
from tests.guest.commands import Commands, commands, ended
from tests.guest.standing import until

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="a mount needs root")


@pytest.fixture
def emu(kernel: Path, tmp_path: Path) -> Iterator[Commands]:
    assert kernel.is_file()
    with commands(tmp_path) as found:
        yield found


@pytest.fixture
def standing(emu: Commands) -> Commands:
    """A cluster `x` is up."""
    assert emu("up", str(emu.pair), "--name", "x").returncode == 0
    return emu


def comes_up_again(emu: Commands) -> None:
    done = emu("down", "x")
    assert done.returncode == 0, done.stderr
    emu.nothing_left()
    done = emu("up", str(emu.pair), "--name", "x")
    assert done.returncode == 0, done.stderr
    assert emu("exec", "n0", "--", "ping", "-c", "1", "n1").returncode == 0


def kernel_of(emu: Commands) -> int:
    """The pid of the guest kernel: the supervisor's first child."""
    return int(Path(f"/proc/{emu.supervisor('x')}/task/{emu.supervisor('x')}/children").read_text().split()[0])


@pytest.mark.parametrize("whom", ["supervisor", "guest"])
def test_a_killed_part_is_a_dead_cluster(standing: Commands, whom: str) -> None:
    os.kill(standing.supervisor("x") if whom == "supervisor" else kernel_of(standing), signal.SIGKILL)
    until(lambda: standing.listed() == {"x": "dead"})
    done = standing("exec", "n0", "--", "true")
    assert done.returncode == 8
    assert "emu down" in done.stderr
    comes_up_again(standing)


def test_a_killed_guest_ends_the_bench_that_runs_in_it(standing: Commands) -> None:
    with standing.start("bench", "x", "--tokens", "200000") as bench:
        time.sleep(1.0)
        assert bench.poll() is None
        os.kill(kernel_of(standing), signal.SIGKILL)
        done = ended(bench, 20)
    assert done.returncode == 8, done.stderr
    comes_up_again(standing)


def test_a_killed_process_of_a_node_is_an_ended_command(standing: Commands) -> None:
    with standing.start("exec", "n0", "--", "sh", "-c", "kill -9 $$") as process:
        assert ended(process).returncode == 137
    assert standing.listed() == {"x": "up"}
    assert standing("exec", "n0", "--", "true").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("words", [("up", "--name", "x"), ("bench", "--tokens", "200000")])
def test_a_command_that_is_ended(emu: Commands, words: tuple[str, ...], number: signal.Signals) -> None:
    """Once its cluster's supervisor is there. But for kill -9, it takes down itself what it has made."""
    with emu.start(words[0], str(emu.pair), *words[1:]) as process:
        until(lambda: any(emu.state.glob("*/journal")))
        process.send_signal(number)
        done = ended(process)
    if done.returncode == 0:
        pytest.fail("it was ready before the signal came")
    assert done.returncode in (-number, 130), done.stderr
    if number != signal.SIGKILL:
        assert emu.listed() == {}
        emu.nothing_left()
    else:
        assert set(emu.listed().values()) <= {"half-made", "up", "dead"}


@pytest.mark.parametrize("words", [("up", "--name", "x"), ("bench", "--tokens", "200000")])
def test_a_closed_terminal_takes_down_what_was_begun(emu: Commands, words: tuple[str, ...]) -> None:
    main, side = pty.openpty()
    line = [sys.executable, "-m", "emulator", words[0], str(emu.pair), *words[1:]]
    helper = (
        "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", helper, *line], env=emu.environment, stdin=side, stdout=side, stderr=side
    )
    os.close(side)
    until(lambda: any(emu.state.glob("*/journal")))
    os.close(main)
    assert process.wait(30) in (130, 1, -signal.SIGHUP)
    assert emu.listed() == {}
    emu.nothing_left()


MOUNTED = """
import ctypes, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
state, size, flags, words = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
def mount(*arguments):
    if libc.mount(*arguments): raise OSError(ctypes.get_errno(), "mount")
os.unshare(os.CLONE_NEWNS) if hasattr(os, "unshare") else libc.unshare(0x20000)
mount(b"none", b"/", None, 0x44000, None)
os.makedirs(state, 0o700, exist_ok=True)
mount(b"none", state.encode(), b"tmpfs", 0, f"size={size},mode=700".encode())
if flags: mount(b"none", state.encode(), None, 32 | flags, b"")
first = subprocess.run([sys.executable, "-m", "emulator", *words])
down = subprocess.run([sys.executable, "-m", "emulator", "down", "--all"])
print("outcome", first.returncode, down.returncode, os.listdir(state))
"""
"""Calls a command on a state directory that is a file system of its own, seen by nobody else, which ends with it."""


@NEEDS_ROOT
@pytest.mark.parametrize("kib", [4, 8, 16, 24, 32, 48, 64, 96])
def test_a_full_disk_is_said_and_leaves_nothing(emu: Commands, kib: int) -> None:
    code = [sys.executable, "-c", MOUNTED, str(emu.state), f"{kib}k", "0", "up", str(emu.pair)]
    done = subprocess.run(code, env=emu.environment, capture_output=True, text=True, timeout=100)
    assert "Traceback" not in done.stderr, done.stderr
    status, down, left = done.stdout.splitlines()[-1].removeprefix("outcome ").split(" ", 2)
    assert int(status) in (0, 8, 12), done.stderr
    if int(status):
        assert "error: " in done.stderr
        assert os.strerror(errno.ENOSPC) in done.stderr or "space" in done.stderr, done.stderr
    assert (down, left) == ("0", "[]"), (done.stdout, done.stderr)
    emu.nothing_left()


@NEEDS_ROOT
def test_a_read_only_state_directory_is_said(emu: Commands) -> None:
    code = [sys.executable, "-c", MOUNTED, str(emu.state), "1m", "1", "up", str(emu.pair)]
    done = subprocess.run(code, env=emu.environment, capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines()[-1] == "outcome 12 0 []", (done.stdout, done.stderr)
    assert "Read-only file system; set EMU_STATE_DIR" in done.stderr


def lost(journal: Path) -> None:
    journal.unlink()


def emptied(journal: Path) -> None:
    journal.write_bytes(b"")


def truncated(journal: Path) -> None:
    journal.write_bytes(journal.read_bytes()[:20])


def of_another_version(journal: Path) -> None:
    """Lines of kinds that this version does not know, and fields more and fewer in those that it does."""
    lines = [
        {"make": "cgroup", "path": "/x"},
        {"make": "process", "purpose": "supervisor"},
        {"made": 1},
        {"make": "namespace", "path": "/nonexistent", "colour": "red"},
    ]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))


def garbled(journal: Path) -> None:
    journal.write_bytes(bytes(range(256)) * 4 + b"[" * 100_000 + b"\n")


@pytest.mark.parametrize("damage", [lost, emptied, truncated, of_another_version, garbled])
def test_a_damaged_journal(standing: Commands, damage: Callable[[Path], None]) -> None:
    """The guest still runs and is used; `ps` says so, and `down` finds it by its socket."""
    damage(standing.state / "x" / "journal")
    works = standing("exec", "n0", "--", "true").returncode == 0
    assert works
    assert standing.listed() == {"x": "up"}
    comes_up_again(standing)


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[" * 100_000, b'{"name": "x", "version": 0}', b"\xff" * 100])
def test_a_damaged_record(standing: Commands, content: bytes) -> None:
    (standing.state / "x" / "cluster.json").write_bytes(content)
    assert standing.listed() == {"x": "damaged"}
    done = standing("exec", "n0", "--", "true")
    assert done.returncode == 12
    assert "emu down x" in done.stderr
    comes_up_again(standing)


@pytest.mark.parametrize("who", ["nobody", "another"])
def test_state_from_before_a_reboot(standing: Commands, who: str) -> None:
    """The pids of the journal are nobody's, or another process's, which stays untouched; the socket is a dead file."""
    supervisor = standing.supervisor("x")
    journal = standing.state / "x" / "journal"
    entry = json.loads(journal.read_text().splitlines()[0])
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: start_time(supervisor) is None)
    with subprocess.Popen(["sleep", "1000"]) as other:
        try:
            born = start_time(other.pid)
            assert born is not None
            entry |= {"pid": other.pid, "start_time": born - 1} if who == "another" else {"pid": 2**22 - 1}
            journal.write_text(json.dumps(entry) + "\n")
            assert standing.listed() == {"x": "dead"}
            comes_up_again(standing)
            assert other.poll() is None
        finally:
            other.kill()


def test_the_lock_of_a_killed_command_goes_with_all_others(emu: Commands) -> None:
    """Killed between making the lock and making the cluster."""
    assert emu.listed() == {}
    (emu.state / "x.lock").touch(mode=0o600)
    assert emu("down", "--all").returncode == 0
    emu.nothing_left()
