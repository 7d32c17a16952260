"""`exec` passes everything through: streams, status, signals, environment, directory, terminal."""

import contextlib
import fcntl
import hashlib
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.errors import ClusterError
from emulator.guest.client import Client
from tests.guest.standing import cluster, command, run, started, until

__all__ = ["cluster"]


@pytest.mark.parametrize("status", [0, 1, 3, 127, 255])
def test_status(cluster: Client, status: int) -> None:
    assert run(cluster, "sh", "-c", f"exit {status}").returncode == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_death_by_signal(cluster: Client, number: int) -> None:
    assert run(cluster, "sh", "-c", f"kill -{int(number)} $$").returncode == 128 + number


def test_what_is_no_command(cluster: Client, tmp_path: Path) -> None:
    done = run(cluster, "no-such-command")
    assert (done.returncode, done.stderr) == (127, b"emu: no-such-command: command not found\n")
    done = run(cluster, "/etc/passwd")
    assert (done.returncode, done.stderr) == (126, b"emu: /etc/passwd: Permission denied\n")
    script = tmp_path / "script"
    script.write_text("echo no first line: $1\n")
    script.chmod(0o755)
    assert run(cluster, str(script), "x", cwd=tmp_path).stdout == b"no first line: x\n"


def test_no_such_node(cluster: Client) -> None:
    with pytest.raises(ClusterError, match="no node 'n9' in this cluster; its nodes are: n2, n3"):
        cluster.exec("n9", ["true"])


def test_streams_stay_apart(cluster: Client) -> None:
    done = run(cluster, "sh", "-c", "cat; echo out; echo err >&2", stdin=b"in\n")
    assert (done.stdout, done.stderr) == (b"in\nout\n", b"err\n")


def test_arguments_and_environment(cluster: Client) -> None:
    odd = "a b\n'\"$x\udcff"
    done = run(cluster, "sh", "-c", 'printf "%s|%s|%s" "$1" "$ODD" "$#"', "sh", odd, "", env={**os.environ, "ODD": odd})
    assert done.stdout == os.fsencode(f"{odd}|{odd}|2")


def test_node(cluster: Client) -> None:
    done = run(cluster, "sh", "-c", "hostname; ip -br link show c0; grep -c 'n[23]$' /etc/hosts; ls /sys/class/net")
    words = done.stdout.split()
    assert words[0] == b"n2"
    assert b"c0@" in words[1]
    assert b"2" in words
    assert {b"c0", b"lo"} <= set(words)


def test_current_directory(cluster: Client, tmp_path: Path) -> None:
    here = tmp_path / "a, b 'c' \u00e9"
    here.mkdir()
    (here / "in").write_text("read")
    done = run(
        cluster, "sh", "-c", "umask; pwd; cat in; echo written > out; touch ../beside 2>&-", cwd=here, umask=0o027
    )
    assert done.stdout.decode() == f"0027\n{here}\nread"
    assert (here / "out").read_text() == "written\n"
    assert (here / "out").stat().st_mode & 0o777 == 0o640
    assert not (tmp_path / "beside").exists()
    (here / "in").write_text("changed")
    assert run(cluster, "cat", "in", cwd=here).stdout == b"changed"


def test_rest_of_the_host_is_read_only(cluster: Client, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for place in ("/", "/usr", "/etc", "/var/tmp"):
        done = run(cluster, "touch", f"{place}/emu-test-file", cwd=tmp_path)
        assert b"Read-only file system" in done.stderr, place
    done = run(cluster, "sh", "-c", "pwd; touch file", cwd="/")
    assert done.stdout == b"/\n"
    assert done.stderr.startswith(b"emu: warning: / stays read-only")
    assert done.returncode != 0


@pytest.mark.parametrize("size", [0, 1, 4095, 65537, 20_000_003])
def test_binary_data_there_and_back(cluster: Client, size: int) -> None:
    data = (hashlib.sha512(str(size).encode()).digest() * (size // 64 + 1))[:size]
    assert run(cluster, "cat", stdin=data).stdout == data


def test_stdin_that_nobody_reads(cluster: Client) -> None:
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
        done = subprocess.run(
            command(cluster, "head", "-c", "4"), stdin=endless.stdout, capture_output=True, timeout=30
        )
        endless.kill()
    assert (done.returncode, done.stdout) == (0, b"y\ny\n")


def test_closed_standard_streams(cluster: Client) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command(cluster, "sh", "-c", "cat; echo x; exit 5")], timeout=30
    )
    assert done.returncode == 5


def test_reader_that_goes_away(cluster: Client) -> None:
    with started(cluster, "yes", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(4) == b"y\ny\n"
        process.stdout.close()
        assert process.wait(30) == 128 + signal.SIGPIPE


def test_slow_reader_holds_up_nobody(cluster: Client) -> None:
    with started(cluster, "sh", "-c", "yes | head -c 30000000", stdout=subprocess.PIPE) as slow:
        time.sleep(1.0)
        supervisor = cluster.supervisor
        before = resident(supervisor)
        assert run(cluster, "echo", "quick").stdout == b"quick\n"
        assert run(cluster, "head", "-c", "20000000", "/dev/zero").stdout == bytes(20_000_000)
        assert resident(supervisor) - before < 16 << 20
        assert slow.stdout is not None
        assert len(slow.stdout.read()) == 30_000_000
        assert slow.wait(10) == 0


def resident(pid: int | None) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_background_process_does_not_hold_exec(cluster: Client) -> None:
    begin = time.monotonic()
    done = run(cluster, "sh", "-c", "(sleep 1; while sleep 0.001; do echo noise; done) & echo $!")
    assert time.monotonic() - begin < 5
    pid = done.stdout.decode().strip()
    assert run(cluster, "sh", "-c", f"kill -0 {pid}").returncode == 0
    assert run(cluster, "sh", "-c", f"sleep 2; kill -9 {pid}").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_signals_reach_the_command(cluster: Client, number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo got {name}; exit 9' {name}; echo ready; while :; do sleep 0.01; done"
    with started(cluster, "sh", "-c", script, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        assert process.stdout.read(6) == b"ready\n"
        process.send_signal(number)
        assert process.stdout.read() == f"got {name}\n".encode()
        assert process.wait(10) == 9


def test_killed_client_takes_its_command_along(cluster: Client) -> None:
    script = "trap '' HUP; echo $$; while :; do sleep 0.01; done"
    with started(cluster, "sh", "-c", script, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        pid = process.stdout.readline().decode().strip()
        process.kill()
    until(lambda: run(cluster, "sh", "-c", f"kill -0 {pid}").returncode != 0)


@contextlib.contextmanager
def attached(client: Client, *argv: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A command with a terminal of the caller's, of 33 rows and 101 columns, and the other side of that terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))

    def lead() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    before = termios.tcgetattr(slave)
    process = subprocess.Popen(command(client, *argv), stdin=slave, stdout=slave, stderr=slave, preexec_fn=lead)
    try:
        yield process, master
        process.wait(20)
        assert termios.tcgetattr(slave) == before
    finally:
        process.kill()
        process.wait()
        os.close(slave)
        os.close(master)


def expect(master: int, text: bytes, seconds: float = 20.0) -> bytes:
    """Read from a terminal until a text comes; all that came."""
    got = b""
    end = time.monotonic() + seconds
    while text not in got:
        ready, _, _ = select.select([master], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"{text!r} did not come; this did: {got!r}"
        got += os.read(master, 4096)
    return got


def test_terminal_size_and_status(cluster: Client) -> None:
    script = "tty; stty size; trap 'stty size; exit 4' WINCH; echo ready; while :; do sleep 0.01; done"
    with attached(cluster, "sh", "-c", script) as (process, master):
        assert b"/dev/pts/0\r\n33 101\r\n" in expect(master, b"ready")
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        expect(master, b"50 160\r\n")
        assert process.wait(10) == 4


def test_job_control_of_a_shell(cluster: Client) -> None:
    with attached(cluster, "env", "PS1=ready> ", "bash", "--norc", "--noprofile", "-i") as (process, master):
        expect(master, b"ready> ")
        os.write(master, b"sleep 1000\n")
        expect(master, b"sleep 1000\r\n")
        time.sleep(0.3)
        os.write(master, b"\x1a")
        expect(master, b"Stopped")
        os.write(master, b"fg\n")
        expect(master, b"sleep 1000\r\n")
        time.sleep(0.3)
        os.write(master, b"\x03")
        expect(master, b"ready> ")
        os.write(master, b"echo status $?\n")
        expect(master, b"status 130\r\n")
        os.write(master, b"exit 6\n")
        assert process.wait(10) == 6


def test_terminal_keeps_real_time(cluster: Client) -> None:
    with attached(cluster, "sh", "-c", "echo ready; sleep 2; echo done") as (process, master):
        expect(master, b"ready\r\n")
        begin = time.monotonic()
        expect(master, b"done\r\n")
        assert 1.5 < time.monotonic() - begin < 4
        assert process.wait(10) == 0


def test_terminal_comes_back_when_the_command_is_ended(cluster: Client) -> None:
    with attached(cluster, "sh", "-c", "echo ready; while :; do sleep 0.01; done") as (process, master):
        expect(master, b"ready\r\n")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 128 + signal.SIGTERM
