"""The guest kernel: what it must have, its clock, and that programs in it are treated as on any other kernel."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emulator.errors import GuestError
from emulator.guest import boot
from emulator.guest.build import KERNEL, missing_options

from .conftest import Bare, cpu_seconds

pytestmark = pytest.mark.timeout(180)

TRACED = pytest.mark.parametrize("parameters", [(), ("dispatch=off",)], ids=["dispatch", "ptrace"])
"""Both ways in which user space is run."""

TWO_NODES = """
sh("mkdir /run/netns; ip netns add n0; ip netns add n1; ip link add e0 netns n0 type veth peer name e1 netns n1")
for i in 0, 1:
    sh(f"ip -n n{i} addr add 10.0.0.{i + 1}/30 dev e{i}")
    sh(f"ip -n n{i} link set lo up; ip -n n{i} link set e{i} mtu 9000 up")
    sh(f"tc -n n{i} qdisc add dev e{i} root netem limit 100000 {NETEM}")
def enter(i):
    assert libc.setns(os.open(f"/run/netns/n{i}", os.O_RDONLY), 0x40000000) == 0
def udp(i):
    enter(i)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    s.bind((f"10.0.0.{i + 1}", 7))
    return s
"""

SPIN = """
import tty
line = os.open("/dev/ttyS0", os.O_RDWR)
tty.setraw(line)
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
child = os.fork()
if child == 0:
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    say("spins")
    while True: {what}
while True:
    os.read(line, 1)
    os.write(line, open(f"/proc/{{child}}/stat").read().split(")")[1].encode())
"""


def test_has_every_option(bare: Bare) -> None:
    (count,) = bare.run(
        """
        import gzip
        open("/dev/shm/config", "w") if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else None
        lines = gzip.open("/proc/config.gz", "rt").read().splitlines()
        for line in lines:
            if "CONFIG_" in line: print("CONFIG", line, flush=True)
        say(len(lines))
        """
    )
    assert int(count) > 500
    printed = bare.console.read_text().splitlines()
    config = "\n".join(line.removeprefix("CONFIG ").strip() for line in printed if line.startswith("CONFIG "))
    assert missing_options(config, (KERNEL / "config").read_text()) == []


def test_parameters_at_boot(bare: Bare) -> None:
    given = {"syscall_ns": 123, "clock_read_ns": 7, "pace": 20000, "cpu_trap_ns": 999}
    said = bare.run(
        """
        for name in "syscall_ns", "clock_read_ns", "pace", "cpu_trap_ns":
            say(name, open(f"/sys/module/time/parameters/{name}").read().strip())
        """,
        *(f"{name.replace('_', '-')}={value}" for name, value in given.items()),
    )
    assert dict(line.split() for line in said) == {name: str(value) for name, value in given.items()}


def test_costs_at_run_time(bare: Bare) -> None:
    said = bare.run(
        """
        def cost(action, count=1000):
            begin = time.monotonic_ns()
            for _ in range(count): action()
            return (time.monotonic_ns() - begin) // count
        parameter("clock_read_ns", 1)
        for ns in 0, 100, 700:
            parameter("syscall_ns", ns)
            say("call", ns, cost(os.getppid))
        parameter("syscall_ns", 0)
        for ns in 1, 50, 400:
            parameter("clock_read_ns", ns)
            say("read", ns, cost(time.monotonic_ns))
        """
    )
    for line in said:
        _what, asked, got = line.split()
        assert int(asked) == int(got), line


def test_virtual_sleep_is_exact(bare: Bare) -> None:
    said = bare.run(
        """
        libc.prctl(29, 1, 0, 0, 0)
        parameter("clock_read_ns", 1)
        for ns in 1_000, 40_000, 1_000_001, 5_000_000_000:
            begin = time.monotonic_ns()
            time.sleep(ns / 1e9)
            say(ns, time.monotonic_ns() - begin)
        """,
        timeout=20,
    )
    for line in said:
        asked, got = map(int, line.split())
        assert asked <= got <= asked + 60, line


PING = """
if os.fork() == 0:
    s = udp(1)
    while True: s.sendto(*s.recvfrom(100))
s = udp(0)
parameter("clock_read_ns", 1)
time.sleep(0.01)
times = []
for _ in range(200):
    begin = time.monotonic_ns()
    s.sendto(b"x" * 64, ("10.0.0.2", 7))
    s.recv(100)
    times.append(time.monotonic_ns() - begin)
times = sorted(times[2:])
say(times[0], times[-1])
"""


@TRACED
def test_ping_over_netem(bare: Bare, parameters: tuple[str, ...]) -> None:
    (said,) = bare.run("NETEM = 'delay 40us'\n" + TWO_NODES + PING, "syscall-ns=0", *parameters)
    least, most = map(int, said.split())
    assert 80_000 <= least <= most <= 80_010


ORDER = """
if os.fork() == 0:
    s = udp(1)
    got = [int(s.recv(100)) for _ in range(500)]
    say(sum(a > b for a, b in zip(got, got[1:])))
    os._exit(0)
s = udp(0)
time.sleep(0.01)
for i in range(500):
    s.sendto(b"%d" % i, ("10.0.0.2", 7))
    time.sleep(1e-6)
os.wait()
"""


@pytest.mark.parametrize(
    ("netem", "ordered"),
    [("delay 100us 50us", True), ("delay 100us 50us rate 8gbit", True), ("delay 100us reorder 50%", False)],
)
def test_jitter_keeps_order(bare: Bare, netem: str, ordered: bool) -> None:
    (overtaken,) = bare.run(f"NETEM = {netem!r}\n" + TWO_NODES + ORDER)
    assert (int(overtaken) == 0) is ordered


EXCHANGE = """
import random
if os.fork() == 0:
    enter(1)
    c, _ = socket.create_server(("10.0.0.2", 9)).accept()
    while data := c.recv(20000): c.sendall(data)
    os._exit(0)
enter(0)
time.sleep(0.01)
c = socket.create_connection(("10.0.0.2", 9))
c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
sizes = random.Random(7)
for _ in range(300):
    left = sizes.randrange(1, 20000)
    begin = time.monotonic_ns()
    c.sendall(bytes(left))
    while left: left -= len(c.recv(20000))
    say(time.monotonic_ns() - begin)
"""


def test_equal_runs(bare: Bare) -> None:
    script = "NETEM = 'delay 40us rate 80gbit'\n" + TWO_NODES + EXCHANGE
    first, second = bare.run(script), bare.run(script)
    assert len(first) == 300
    assert len(set(first)) > 100
    assert first == second


@TRACED
def test_cpu_time_is_charged(bare: Bare, parameters: tuple[str, ...]) -> None:
    said = bare.run(
        """
        def loop(scale):
            libc.syscall(158, 0x454d5501, scale)
            begin = time.monotonic_ns()
            for _ in range(1_000_000): pass
            os.getppid()
            return time.monotonic_ns() - begin
        begin = time.monotonic_ns()
        for scale in 0, 1000, 4000:
            if os.fork() == 0:
                say(scale, loop(scale))
                os._exit(0)
        for _ in range(3): os.wait()
        say("all", time.monotonic_ns() - begin)
        """,
        *parameters,
    )
    took = {line.split()[0]: int(line.split()[1]) for line in said}
    assert took["0"] < 10_000
    assert 1e6 < took["1000"] < 1e9
    assert 2 < took["4000"] / took["1000"] < 8
    assert took["all"] < took["4000"] * 1.2, "processes overlap as if each had a processor of its own"


def test_pace(bare: Bare) -> None:
    bare.start(
        """
        parameter("pace", 0)
        time.sleep(100)
        say("a")
        parameter("pace", 1000)
        time.sleep(1)
        say("b")
        parameter("pace", 0)
        time.sleep(100)
        say("c")
        signal.pause()
        """
    )
    bare.until(1)
    begin = time.monotonic()
    bare.until(2)
    paced = time.monotonic() - begin
    bare.until(3)
    assert 0.8 < paced < 1.6
    assert time.monotonic() - begin - paced < 0.8


@pytest.fixture(scope="session")
def registers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("registers") / "registers"
    source = Path(__file__).with_name("registers.c")
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-pthread", "-o", program, source], check=True)
    return program


@TRACED
def test_registers_are_kept(bare: Bare, registers: Path, parameters: tuple[str, ...]) -> None:
    (said,) = bare.run(f"say(sh({str(registers)!r}).strip())", *parameters)
    assert said == subprocess.run([registers], check=True, capture_output=True, text=True).stdout.strip()


@TRACED
def test_single_steps_of_a_traced_process(bare: Bare, parameters: tuple[str, ...]) -> None:
    (said,) = bare.run(
        """
        TRACEME, CONT, SINGLESTEP = 0, 7, 9
        child = os.fork()
        if child == 0:
            libc.ptrace(TRACEME, 0, None, None)
            os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(7)
        os.waitpid(child, 0)
        steps = 0
        for _ in range(500):
            assert libc.ptrace(SINGLESTEP, child, None, None) == 0
            _, status = os.waitpid(child, 0)
            assert os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGTRAP, hex(status)
            steps += 1
        libc.ptrace(CONT, child, None, None)
        say(steps, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        *parameters,
    )
    assert said == "500 7"


@TRACED
def test_faults_reach_the_program(bare: Bare, parameters: tuple[str, ...]) -> None:
    said = bare.run(
        """
        def status(action):
            child = os.fork()
            if child == 0:
                action()
                os._exit(0)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        import mmap
        def execute(code):
            area = mmap.mmap(-1, 4096, prot=7)
            area.write(code)
            ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(area)))()
        say(status(lambda: ctypes.string_at(16)))
        say(status(lambda: execute(bytes.fromhex("0f0b"))))
        say(status(lambda: execute(bytes.fromhex("31c9f7f1c3"))))
        say(status(lambda: execute(bytes.fromhex("ccc3"))))
        say(status(lambda: execute(bytes.fromhex("c3"))))
        """,
        *parameters,
    )
    assert [int(word) for word in said] == [-signal.SIGSEGV, -signal.SIGILL, -signal.SIGFPE, -signal.SIGTRAP, 0]


def test_userfaultfd_and_memfd(bare: Bare) -> None:
    said = bare.run(
        """
        import fcntl, mmap, struct
        memfd = os.memfd_create("pages")
        os.ftruncate(memfd, 8192)
        shared = mmap.mmap(memfd, 8192)
        shared[4096] = 9
        say(os.pread(memfd, 1, 4096)[0])
        UFFDIO_API, UFFDIO_REGISTER, UFFDIO_COPY = 0xC018AA3F, 0xC020AA00, 0xC028AA03
        uffd = libc.syscall(323, 0)
        fcntl.ioctl(uffd, UFFDIO_API, struct.pack("QQQ", 0xAA, 0, 0))
        area = mmap.mmap(-1, 4 * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(area))
        fcntl.ioctl(uffd, UFFDIO_REGISTER, struct.pack("QQQQ", begin, 4 * 4096, 1, 0))
        source = ctypes.create_string_buffer(b"served" * 1000, 8192)
        aligned = (ctypes.addressof(source) + 4095) & ~4095
        ctypes.memmove(aligned, b"served" * 600, 3600)
        if os.fork() == 0:
            for _ in range(3):
                address = struct.unpack_from("Q", os.read(uffd, 32), 16)[0] & ~4095
                fcntl.ioctl(uffd, UFFDIO_COPY, struct.pack("QQQQq", address, aligned, 4096, 0, 0))
                say((address - begin) // 4096)
            os._exit(0)
        say(bytes(area[4096:4102]).decode(), bytes(area[0:6]).decode())
        area[2 * 4096] = 1
        os.wait()
        say(bytes(area[2 * 4096 + 1:2 * 4096 + 6]).decode())
        """
    )
    assert said == ["9", "1", "0", "served served", "2", "erved"]


@TRACED
@pytest.mark.parametrize("what", ["pass", "os.getppid()"])
def test_answers_while_a_process_spins(bare: Bare, what: str, parameters: tuple[str, ...]) -> None:
    bare.start(SPIN.format(what=what), *parameters)
    bare.until(1)
    time.sleep(0.3)
    bare.line.settimeout(5)
    for _ in range(5):
        bare.line.send(b"?")
        assert bare.line.recv(500).split()[0] == b"R"


@TRACED
def test_stop_uses_no_cpu(bare: Bare, parameters: tuple[str, ...]) -> None:
    guest = bare.start(SPIN.format(what="pass"), *parameters)
    bare.until(1)
    boot.stop(guest.pid)
    time.sleep(0.1)
    before = cpu_seconds(guest.pid)
    time.sleep(1)
    assert cpu_seconds(guest.pid) - before <= 0.01
    boot.resume(guest.pid)
    bare.line.settimeout(5)
    bare.line.send(b"?")
    assert bare.line.recv(500).split()[0] == b"R"


def living(group: int) -> list[str]:
    """The processes of a process group that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            found.append(stat.parent.name)
    return found


@TRACED
def test_killed_kernel_leaves_nothing(bare: Bare, parameters: tuple[str, ...]) -> None:
    guest = bare.start(SPIN.format(what="pass"), *parameters)
    bare.until(1)
    assert len(living(guest.pid)) > 1
    guest.kill()
    guest.wait()
    late = time.monotonic() + 5
    while living(guest.pid) and time.monotonic() < late:
        time.sleep(0.02)
    assert living(guest.pid) == []


def test_a_process_killed_on_the_host_is_an_ended_process(bare: Bare) -> None:
    guest = bare.start(
        """
        child = os.fork()
        if child == 0:
            say("spins")
            while True: pass
        say("status", os.waitpid(child, 0)[1] & 127)
        """
    )
    bare.until(1)
    time.sleep(0.2)
    busiest = max((pid for pid in living(guest.pid) if int(pid) != guest.pid), key=lambda pid: _ticks(int(pid)))
    os.kill(int(busiest), signal.SIGKILL)
    assert bare.until(2)[1] == f"status {signal.SIGSEGV.value}"


def _ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


def test_dies_with_whoever_booted_it(kernel: Path, tmp_path: Path) -> None:
    init = tmp_path / "sleeper"
    init.write_text("#!/bin/sh\nexec sleep 1000000000\n")
    init.chmod(0o755)
    parent = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            "import os, sys, time; from pathlib import Path; from emulator.guest.boot import boot\n"
            "r, w = os.pipe(); kernel, init, console = map(Path, sys.argv[1:])\n"
            "print(boot(kernel, init, (r, w), clock='virtual', memory='256M', console=console).pid, flush=True)\n"
            "time.sleep(1000)",
            *(str(kernel), str(init), str(tmp_path / "console")),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout
    with parent.stdout:
        guest = int(parent.stdout.readline())
        time.sleep(0.5)
        assert living(guest)
        parent.kill()
        parent.wait()
    late = time.monotonic() + 5
    while living(guest) and time.monotonic() < late:
        time.sleep(0.02)
    assert living(guest) == []


@TRACED
def test_real_clock(bare: Bare, parameters: tuple[str, ...]) -> None:
    begin = time.monotonic()
    slept, *counts = bare.run(
        """
        begin = time.monotonic()
        time.sleep(0.5)
        say(time.monotonic() - begin)
        for _ in range(2):
            if os.fork() == 0:
                n, end = 0, time.monotonic() + 1
                while time.monotonic() < end:
                    for _ in range(1000): pass
                    n += 1
                say(n)
                os._exit(0)
        os.wait(), os.wait()
        """,
        *parameters,
        clock="real",
    )
    assert 0.5 <= float(slept) < 1
    assert time.monotonic() - begin > 1.5
    first, second = sorted(int(count) for count in counts)
    assert first > second / 4, "both have the processor in turn"


def test_a_space_in_the_command_line_is_refused(kernel: Path, tmp_path: Path) -> None:
    with pytest.raises(GuestError, match="has a space"):
        boot.boot(kernel, tmp_path / "a b", (0, 1), clock="virtual", memory="64M", console=tmp_path / "console")
