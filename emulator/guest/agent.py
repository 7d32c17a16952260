"""The agent: the first process inside the guest. It answers requests that come over the serial line, one select loop.

It goes before all others, so that it hears the host even while every node computes. Started with -I -S and
the paths to import from, because looking for site packages takes long here. Called with the JSON of a `Start`.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
import tty
from collections.abc import Callable
from pathlib import Path

import msgspec

from emulator.errors import ClusterError, GuestError
from emulator.guest import mounts
from emulator.guest.command import Command
from emulator.guest.job import Job, Work
from emulator.guest.protocol import (
    ANSWER,
    CONTROL,
    HELLO,
    REQUEST,
    STDIN,
    Answer,
    Apply,
    Change,
    Control,
    Decoder,
    Done,
    Exec,
    Frame,
    Inspect,
    Look,
    Opening,
    PowerOff,
    Probe,
    Run,
    Running,
    Set,
    Sight,
    encode,
    failure,
    unpack,
)
from emulator.plan.model import Plan, decode

REAL_PACE = 1000
"""Per mille of real time; 0 is full speed."""
PROGRAMS = {"syscall_ns": 100, "clock_read_ns": 50}
"""What a system call and a look at the clock cost any program, so that one that polls makes time pass."""
MEASURED = {"syscall_ns": 0, "clock_read_ns": 0}
"""What they cost a workload."""
HOSTS = Path("/run/emu/hosts")
_POWER_OFF = 0x4321FEDC
"""LINUX_REBOOT_CMD_POWER_OFF, of reboot(2)."""


class Start(msgspec.Struct):
    """What the agent is started with."""

    scratch: str
    """Directory of the host that plans, programs and recordings go through."""
    keep: list[str]
    """Directories of the host that must stay visible."""
    now: float
    """Seconds since 1970: what the guest's clock of the day begins with."""
    virtual: bool
    """The guest is on the virtual clock."""
    pace: bool
    """Keep real time's pace, except while a workload runs."""


class Agent:
    def __init__(self, line: int, start: Start) -> None:
        self.line = line
        self.start = start
        self.costs = dict(PROGRAMS)
        self.time: dict[str, int] = {}
        """The parameters of virtual time, as last set."""
        self.poll = select.poll()
        self.handlers: dict[int, Callable[[], None]] = {}
        self.running: dict[int, Command | Job] = {}
        """By channel."""
        self.decoder = Decoder()
        self.plan: Plan | None = None

    # What requests use.

    def watch(self, descriptor: int, events: int, handler: Callable[[], None]) -> None:
        """Call `handler` when `descriptor` is ready for `events`, or has hung up."""
        self.handlers[descriptor] = handler
        self.poll.register(descriptor, events)

    def forget(self, descriptor: int) -> None:
        if self.handlers.pop(descriptor, None):
            self.poll.unregister(descriptor)

    def discard(self, descriptor: int) -> None:
        """Read away, to the end, what is written to `descriptor`."""

        def read() -> None:
            with contextlib.suppress(BlockingIOError):
                if not os.read(descriptor, 65536):
                    self.forget(descriptor)
                    os.close(descriptor)

        self.watch(descriptor, select.POLLIN, read)

    def send(self, kind: int, channel: int, payload: bytes) -> None:
        data = memoryview(encode(kind, channel, payload))
        while data:
            data = data[os.write(self.line, data) :]

    def control(self, channel: int, order: Control) -> None:
        self.send(CONTROL, channel, msgspec.msgpack.encode(order))

    def answer(self, channel: int, answer: Answer) -> None:
        self.running.pop(channel, None)
        self.keep_time()
        self.send(ANSWER, channel, msgspec.msgpack.encode(answer))

    def keep_time(self) -> None:
        """Let virtual time go as what runs needs it.

        It runs ahead only while a job runs, or a command without a terminal. With a person at a terminal it keeps real
        time's pace. So it does when nothing is asked, until the host stops it: an idle guest is ahead by a minute in no
        time. A workload pays nothing for system calls, since it never polls: it measures the cables alone.
        """
        if not self.start.virtual:
            return
        running = self.running.values()
        terminal = any(isinstance(one, Command) and one.terminal for one in running)
        jobs = any(isinstance(one, Job) for one in running)
        workload = any(isinstance(one, Job) and one.measures for one in running)
        wanted = dict(MEASURED if workload else self.costs)
        wanted["pace"] = 0 if jobs or (running and not terminal and not self.start.pace) else REAL_PACE
        for name, value in wanted.items():
            if self.time.get(name) != value:
                set_parameter(name, value)
        self.time = wanted

    def end_session(self, leader: int, kill: bool) -> None:
        """End all processes of a session."""
        for pid, fields in processes():
            if int(fields[3]) == leader:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if kill else signal.SIGHUP)
                    os.kill(pid, signal.SIGCONT)

    # The loop.

    def serve(self) -> None:
        """Answer for ever."""
        wake, wake_end = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(wake_end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        self.watch(wake, select.POLLIN, lambda: self.reap(wake))
        self.watch(self.line, select.POLLIN, self.hear)
        self.keep_time()
        self.send(HELLO, 0, b"")
        while True:
            for descriptor, handler in [(ready, self.handlers[ready]) for ready, _ in self.poll.poll()]:
                if self.handlers.get(descriptor) is handler:  # no handler before it has changed what is waited for
                    handler()

    def reap(self, wake: int) -> None:
        """Wait for every child that has ended, orphans included."""
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                for running in list(self.running.values()):
                    if running.pid == pid:
                        running.ended(status)

    def hear(self) -> None:
        for frame in self.decoder.feed(os.read(self.line, 65536)):
            if frame.type == REQUEST:
                try:
                    self.open(frame)
                    self.keep_time()
                except Exception as error:
                    self.answer(frame.channel, failure(error))
            elif running := self.running.get(frame.channel):
                if frame.type == STDIN:
                    running.write(frame.payload)
                elif frame.type == CONTROL:
                    running.control(unpack(frame.payload, Control))

    def open(self, frame: Frame) -> None:
        channel = frame.channel
        match unpack(frame.payload, Opening).request:
            case Exec() as request:
                node = next((node for node in self.standing.nodes if node.name == request.node), None)
                if node is None:
                    names = ", ".join(node.name for node in self.standing.nodes)
                    raise ClusterError(f"no node {request.node!r} in this cluster; its nodes are: {names}")
                self.running[channel] = Command(self, channel, request, node, HOSTS)
            case Apply(path):
                plan = decode(Path(path).read_bytes())
                self.running[channel] = Job(self, channel, apply(plan), lambda: setattr(self, "plan", plan))
            case Change(path, everything):
                new = decode(Path(path).read_bytes())
                work = change(self.standing, new, everything)
                self.running[channel] = Job(self, channel, work, lambda: setattr(self, "plan", new))
            case Run(program, recording, events):
                self.running[channel] = Job(
                    self, channel, run(self.standing, program, recording, self.start.virtual, events), measures=True
                )
            case Probe(ask, found):
                self.running[channel] = Job(self, channel, probe(self.standing, ask, found), measures=True)
            case Inspect():
                self.running[channel] = Job(self, channel, inspect(self.standing))
            case Set(values):
                for name, value in values.items():
                    if name in self.costs:
                        self.costs[name] = value
                    else:
                        set_parameter(name, value)
                self.answer(channel, Done())
            case Look():
                begin, running = time.monotonic_ns(), spinning()
                sight = Sight(begin, time.monotonic_ns(), running)
                self.answer(channel, Done(msgspec.json.encode(sight)))
            case PowerOff():
                os.sync()
                self.answer(channel, Done())
                ctypes.CDLL(None).reboot(_POWER_OFF)
            case other:
                raise GuestError(f"the agent does not know the request {other!r}")

    @property
    def standing(self) -> Plan:
        if self.plan is None:
            raise ClusterError("no cluster stands in this guest yet")
        return self.plan


# The work of jobs. What is imported here is heavy and not always needed.


def apply(plan: Plan) -> Work:
    from emulator.fabric.apply import apply
    from emulator.fabric.journal import Journal

    def work(report: Callable[[str, float], None]) -> bytes:
        HOSTS.parent.mkdir(exist_ok=True)
        HOSTS.write_text(plan.hosts_text())
        with Journal(Path("/run/emu/journal")) as journal:
            apply(plan, journal, lambda what, done, total: report(what, done / total))
        return b"null"

    return work


def change(old: Plan, new: Plan, everything: bool) -> Work:
    from emulator.fabric.change import change

    def work(_report: Callable[[str, float], None]) -> bytes:
        change(old, new, everything)
        return b"null"

    return work


def run(plan: Plan, program: str, recording: str, virtual: bool, events: str) -> Work:
    from emulator.fabric.reshape import reshape
    from emulator.plan.event import decode as decode_events
    from emulator.workload.program import decode
    from emulator.workload.run import run

    def work(report: Callable[[str, float], None]) -> bytes:
        if virtual:
            # Who is woken first runs first. The fair scheduler would ask what each has done since the guest was booted.
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        reshape(plan)  # equal runs begin from equal seeds
        timed = decode_events(Path(events).read_bytes()) if events else ()
        run(plan, decode(Path(program).read_bytes()), Path(recording), report, timed)
        return b"null"

    return work


def probe(plan: Plan, ask: bytes, found: str) -> Work:
    from emulator.fabric.probe import Ask, probe

    def work(report: Callable[[str, float], None]) -> bytes:
        Path(found).write_bytes(msgspec.json.encode(probe(plan, msgspec.json.decode(ask, type=Ask), report)))
        return b"null"

    return work


def inspect(plan: Plan) -> Work:
    from emulator.fabric.inspect import inspect

    return lambda _: msgspec.json.encode(inspect(plan))


def set_parameter(name: str, value: int) -> None:
    """Set a parameter of the kernel, whichever part of it has it. Raises GuestError where none has."""
    for path in Path("/sys/module").glob(f"*/parameters/{name}"):
        path.write_text(f"{value}\n")
        return
    raise GuestError(f"this guest kernel has no parameter {name!r}; build it anew: emu kernel build")


def processes() -> list[tuple[int, list[str]]]:
    """All processes: the number, and the fields of /proc/PID/stat from the state on (see proc(5))."""
    found = []
    for name in os.listdir("/proc"):  # Path makes more system calls  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                found.append((int(name), read(f"/proc/{name}/stat").rpartition(")")[2].split()))
    return found


def read(path: str) -> str:
    """A small file. No system call fails here, as one does in open(): on the virtual clock that takes 1 us."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 65536).decode(errors="replace")
    finally:
        os.close(descriptor)


def spinning() -> list[Running]:
    """Who wants the processor, the agent aside."""
    found = []
    for pid, fields in processes():
        if fields[0] == "R" and pid != os.getpid():
            with contextlib.suppress(OSError):
                if command := " ".join(read(f"/proc/{pid}/cmdline").replace("\0", " ").split()):
                    found.append(Running(pid, command))
    return found


def share_memory_with_tcp() -> None:
    """Let TCP have most of the memory: Linux gives it a tenth, which a few full buffers of fast cables exceed."""
    pages = os.sysconf("SC_PHYS_PAGES")
    Path("/proc/sys/net/ipv4/tcp_mem").write_text(f"{pages // 2} {pages * 5 // 8} {pages * 3 // 4}")


def drop_nothing_between_cable_and_node() -> None:
    """Let any number of packets wait for a processor: Linux drops those beyond 1000, and on the virtual clock all that
    cables bring at one instant wait."""
    Path("/proc/sys/net/core/netdev_max_backlog").write_text("1000000")


def main(argument: str) -> None:
    start = msgspec.json.decode(argument, type=Start)
    os.environ.update(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME="/root", LANG="C.UTF-8")
    mounts.mount_guest(start.scratch, start.keep)
    share_memory_with_tcp()
    drop_nothing_between_cable_and_node()
    time.clock_settime(time.CLOCK_REALTIME, start.now)
    # Not SCHED_FIFO: the scheduler puts ordinary processes before that once they have not used 50 ms of processor in a
    # second (kernel/sched/deadline.c, fair_server). On the virtual clock nobody uses any.
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    line = os.open("/dev/ttyS0", os.O_RDWR | os.O_NOCTTY)
    tty.setraw(line)
    Agent(line, start).serve()


if __name__ == "__main__":
    main(sys.argv[1])
