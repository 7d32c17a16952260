"""The supervisor: how it holds the guest's time, and what is left when one of the parts dies."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator.errors import FabricError, GuestError, StalledError
from emulator.guest import boot
from emulator.guest.build import find_kernel
from emulator.guest.client import Client, connect
from emulator.guest.launch import launch
from emulator.guest.protocol import HEADER, MAGIC, REQUEST, encode
from emulator.guest.supervisor import SOCKET, bound_to
from tests.guest.conftest import cpu_seconds
from tests.guest.standing import cluster, command, guest, pair, run, started, until

__all__ = ["cluster"]


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Client]:
    """A guest of the test's own, to be ended."""
    with guest(tmp_path / "own") as client:
        yield client


def test_idle_guest_is_stopped(cluster: Client) -> None:
    pid = cluster.status().pid
    before = cluster.look().now_ns
    assert cluster.status().stopped
    used = cpu_seconds(pid)
    time.sleep(1.5)
    assert cpu_seconds(pid) - used <= 0.02
    assert cluster.look().now_ns - before < 1_000_000_000


def test_commands_run_at_full_speed(cluster: Client) -> None:
    begin = time.monotonic()
    assert run(cluster, "sleep", "3600").returncode == 0
    assert time.monotonic() - begin < 10


def test_pace(tmp_path: Path) -> None:
    with guest(tmp_path / "paced", pace=True) as client:
        client.exec("n2", ["true"], terminal=False)
        begin, before = time.monotonic(), client.look().now_ns
        time.sleep(2)
        assert not client.status().stopped
        passed, virtual = time.monotonic() - begin, client.look().now_ns - before
        assert 0.5 * passed < virtual / 1e9 < 1.5 * passed
        pid = client.status().pid
        used = cpu_seconds(pid)
        time.sleep(1)
        assert cpu_seconds(pid) - used < 0.3


def test_real_clock_is_never_stopped(tmp_path: Path) -> None:
    with guest(tmp_path / "real", clock="real") as client:
        before = client.look().now_ns
        time.sleep(1)
        assert not client.status().stopped
        assert 0.8e9 < client.look().now_ns - before < 3e9
        assert run(client, "cat", stdin=b"x" * 3_000_000).stdout == b"x" * 3_000_000


def test_parameters(cluster: Client) -> None:
    cluster.set(syscall_ns=120)
    assert run(cluster, "sh", "-c", "cat /sys/module/*/parameters/syscall_ns").stdout == b"120\n"
    cluster.set(syscall_ns=100)
    with pytest.raises(GuestError, match="no parameter 'no_such'"):
        cluster.set(no_such=1)


def test_cables_are_read_back(cluster: Client) -> None:
    assert b'"delay_ns":40000' in cluster.inspect()


def test_a_failing_plan_says_why(tmp_path: Path) -> None:
    with guest(tmp_path / "twice") as client, pytest.raises(Exception, match="stands already") as error:
        client.apply(pair())
    assert error.type.__module__ == FabricError.__module__


@pytest.mark.parametrize("program", ["while True: pass", "import os; [0 for _ in iter(os.getppid, -1)]"])
def test_spinning_program_is_named(cluster: Client, program: str) -> None:
    cluster.set(syscall_ns=0)
    begin = time.monotonic()
    with pytest.raises(StalledError, match=rf"process \d+: \S+ -c {re.escape(program)}"):
        cluster.exec("n2", [sys.executable, "-c", program], terminal=False, limit=3)
    assert 3 <= time.monotonic() - begin < 10
    assert run(cluster, "echo", "well").stdout == b"well\n"
    until(lambda: not cluster.look().running)
    cluster.set(syscall_ns=100)


def test_waiting_for_input_is_no_stall(cluster: Client) -> None:
    with started(cluster, "cat", limit=2, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        time.sleep(5)
        assert process.communicate(b"late", timeout=10)[0] == b"late"
        assert process.returncode == 0


def test_guest_that_dies(own: Client) -> None:
    with started(own, "sh", "-c", "echo ready; sleep 1000000000", stdout=-1, stderr=-1) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"ready\n"
        os.kill(own.status().pid, signal.SIGKILL)
        assert process.wait(10) == 200 + GuestError.exit_code
        assert b"the guest kernel has ended" in process.stderr.read()
    assert own.supervisor is not None
    until(lambda: gone(own.supervisor or 0))
    assert not (own.directory / SOCKET).exists()
    with pytest.raises(GuestError, match="does not run"):
        connect(own.directory)


def test_supervisor_that_dies(own: Client) -> None:
    pid = own.status().pid
    assert own.supervisor is not None
    os.kill(own.supervisor, signal.SIGKILL)
    until(lambda: gone(pid))
    until(lambda: not children_of(pid))
    with pytest.raises(GuestError):
        own.look()


def children_of(group: int) -> list[int]:
    """Processes of the guest's group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return found


def test_poweroff_leaves_nothing(own: Client) -> None:
    pid, supervisor = own.status().pid, own.supervisor
    begin = time.monotonic()
    own.poweroff()
    assert time.monotonic() - begin < 1
    assert gone(pid)
    assert gone(supervisor or 0)
    until(lambda: not children_of(pid), 1)
    assert not (own.directory / SOCKET).exists()


def test_garbage_on_the_socket_hurts_nobody(cluster: Client) -> None:
    for data in (
        b"GET / HTTP/1.1\r\n\r\n",
        HEADER.pack(MAGIC, REQUEST, 1, 2**31),
        encode(REQUEST, 1, b"\xc1"),
        b"\xe5",
    ):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as raw:
            bound_to(cluster.directory, raw.connect)
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
            raw.settimeout(5)
            while raw.recv(65536):
                pass
    assert run(cluster, "echo", "well").stdout == b"well\n"
    assert cluster.status().requests == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_other_users_are_refused(cluster: Client) -> None:
    script = (
        "import os, socket\n"
        "os.setresuid(65534, 65534, 65534)\n"
        "one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)\n"
        "one.connect('guest.socket')\n"
        "print(one.recv(100))\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=cluster.directory, capture_output=True, text=True, timeout=20)
    assert "Permission denied" in done.stderr
    cluster.directory.chmod(0o711)
    (cluster.directory / SOCKET).chmod(0o777)
    done = subprocess.run(command, cwd=cluster.directory, capture_output=True, text=True, timeout=20)
    cluster.directory.chmod(0o700)
    assert done.stdout == "b''\n", done.stderr


def test_long_path(tmp_path: Path) -> None:
    with guest(tmp_path / ("long" * 50) / ("path" * 20)) as client:
        assert run(client, "echo", "x").stdout == b"x\n"


def test_kernel_that_does_not_boot(tmp_path: Path) -> None:
    with pytest.raises(GuestError, match=r"cannot be started|ended while it booted"):
        launch(tmp_path, kernel=Path("/bin/false"))
    with pytest.raises(GuestError, match="cannot be started"):
        launch(tmp_path, kernel=tmp_path / "none")


def test_started_is_told_before_anything_is_made(tmp_path: Path) -> None:
    told = []

    def started(pid: int) -> None:
        told.append(pid)
        assert not (tmp_path / SOCKET).exists()
        raise KeyboardInterrupt

    kernel = find_kernel()
    assert kernel is not None
    with pytest.raises(KeyboardInterrupt):
        launch(tmp_path, kernel=kernel, started=started)
    assert gone(told[0])


def test_nudge_of_a_guest_that_has_gone() -> None:
    boot.nudge(2**22 - 1)


def test_many_requests_at_once(cluster: Client) -> None:
    processes = [
        subprocess.Popen(command(cluster, "sh", "-c", f"sleep 0.1; cat; exit {status}", node=node), stdin=-1, stdout=-1)
        for status in range(4)
        for node in ("n2", "n3")
    ]
    for index, process in enumerate(processes):
        data = bytes([index]) * 500_000
        assert process.communicate(data, timeout=60)[0] == data
        assert process.returncode == index // 2
