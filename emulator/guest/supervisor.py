"""The supervisor: the process on the host that owns a guest, one for each cluster. It ends with its guest.

It relays frames between the clients on its unix socket (one connection, one request) and the agent on the serial line,
and stops a guest on the virtual clock while nothing is asked of it. It watches for virtual time that stands still.
"""

import contextlib
import logging
import logging.handlers
import os
import re
import selectors
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from emulator.errors import GuestError, StalledError
from emulator.guest import boot
from emulator.guest.protocol import (
    ANSWER,
    CONTROL,
    HELLO,
    REQUEST,
    Done,
    End,
    Failed,
    Frame,
    Look,
    Opening,
    PowerOff,
    ProtocolError,
    Request,
    Sight,
    State,
    Status,
    encode,
    failure,
    unpack,
)
from emulator.guest.standstill import Standstill
from emulator.guest.wire import Wire
from emulator.state import Clock

SOCKET = "guest.socket"
LOG = "supervisor.log"
CONSOLE = "console.log"
LOG_BYTES = 256 << 10
CONSOLE_BYTES = 4 << 20
BOOT_SECONDS = 30.0
GRACE = 1.0
"""Seconds between SIGHUP and SIGKILL for what a client left behind."""
STACK = re.compile(r"\[<[0-9a-f]+>\]|^(<\d>)?( [0-9a-f]{8,16})+$|(Stack|Call Trace):$")
"""Lines of a kernel's panic that say nothing without its symbols."""

log = logging.getLogger("supervisor")


class Channel:
    """An open request."""

    def __init__(self, wire: Wire, opening: Opening) -> None:
        self.wire: Wire | None = wire
        """None once the client has gone, or has been told that its time is over."""
        self.request: Request = opening.request
        self.limit = opening.limit
        self.opened = time.monotonic()
        self.kill_at: float | None = None
        """When to send SIGKILL, if a SIGHUP did not do."""


class Supervisor:
    def __init__(
        self,
        directory: Path,
        guest: "subprocess.Popen[bytes]",
        lines: tuple[socket.socket, socket.socket],
        clock: Clock,
        pace: bool,
    ) -> None:
        self.directory = directory
        self.guest = guest
        self.clock = clock
        self.pace = pace
        self.selector = selectors.DefaultSelector()
        self.ear = Wire(self.selector, lines[0], self.hear_guest)
        self.line = Wire(self.selector, lines[1], self.hear_guest)
        self.death = os.pidfd_open(guest.pid)
        self.selector.register(self.death, selectors.EVENT_READ, self.guest_ended)
        self.listener: socket.socket | None = None
        self.channels: dict[int, Channel] = {}
        self.next_channel = 0
        self.alive = True
        self.ready = False
        self.ending = False
        self.stopped = False
        self.standstill = Standstill(time.monotonic())

    def serve(self) -> None:
        """Until the guest has ended."""
        while self.alive:
            for key, events in self.selector.select(self.timeout()):
                key.data(events)
            self.tick()
        self.say_goodbye()

    # Clients.

    def listen(self) -> None:
        """Open the cluster's socket to this user (and root)."""
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        bound_to(self.directory, self.listener.bind)
        self.listener.listen(64)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)

    def accept(self, _events: int) -> None:
        assert self.listener is not None
        with contextlib.suppress(BlockingIOError):
            connection, _ = self.listener.accept()
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid, user, _ = struct.unpack("3i", credentials)
            if user not in (0, os.geteuid()):
                log.warning("refused process %d of user %d", pid, user)
                connection.close()
                return
            self.next_channel += 1
            number = self.next_channel
            wire = Wire(self.selector, connection, lambda: self.hear_client(number, wire))

    def hear_client(self, number: int, wire: Wire) -> None:
        data = wire.read()
        if data is None:
            return
        try:
            if not data:
                self.client_gone(number, wire)
                return
            for frame in wire.decoder.feed(data):
                self.from_client(number, wire, frame)
        except (ProtocolError, GuestError) as error:
            log.warning("a client's request: %s", error)
            wire.send(encode(ANSWER, number, failure(error)))
            self.client_gone(number, wire)

    def client_gone(self, number: int, wire: Wire) -> None:
        wire.close()
        if channel := self.channels.get(number):
            channel.wire = None
            self.end(number, channel)

    def end(self, number: int, channel: Channel) -> None:
        """End what runs for a request, by SIGHUP and then by SIGKILL."""
        channel.kill_at = time.monotonic() + GRACE
        self.line.send(encode(CONTROL, number, End(kill=False)))

    def from_client(self, number: int, wire: Wire, frame: Frame) -> None:
        if frame.type != REQUEST:
            if number in self.channels:
                self.line.send(encode(frame.type, number, frame.payload))
            return
        opening: Opening = unpack(frame.payload, Opening)
        if isinstance(opening.request, Status):
            state = State(self.guest.pid, self.clock, self.pace, self.stopped, len(self.channels))
            wire.send(encode(ANSWER, number, Done(msgspec.json.encode(state))))
            return
        if number in self.channels:
            raise ProtocolError("a second request on one connection")
        self.channels[number] = Channel(wire, opening)
        log.info("request %d: %s", number, type(opening.request).__name__)
        with contextlib.suppress(OSError):
            if (self.directory / CONSOLE).stat().st_size > CONSOLE_BYTES:
                os.truncate(self.directory / CONSOLE, 0)
        self.steer()
        self.line.send(encode(REQUEST, number, frame.payload))

    # The guest.

    def hear_guest(self) -> None:
        data = self.ear.read()
        if data is None:
            return
        if not data:
            self.alive = False
            return
        try:
            for frame in self.ear.decoder.feed(data):
                self.from_guest(frame)
        except ProtocolError as error:
            log.error("the guest: %s", error)
            self.alive = False

    def from_guest(self, frame: Frame) -> None:
        if frame.type == HELLO:
            self.ready = True
        elif frame.channel == 0:
            if frame.type == ANSWER:
                self.own_answer(unpack(frame.payload, Done | Failed))
        elif channel := self.channels.get(frame.channel):
            if channel.wire:
                channel.wire.send(encode(frame.type, frame.channel, frame.payload))
            if frame.type == ANSWER:
                del self.channels[frame.channel]
                if isinstance(channel.request, PowerOff):
                    self.alive = False  # what it has written is on the host: no need to wait for its own end
                    self.ending = True
                else:
                    self.steer()

    def guest_ended(self, _events: int) -> None:
        self.alive = False

    def say_goodbye(self) -> None:
        """The guest has ended, or is to end: tell every client, and leave nothing behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.guest.pid, signal.SIGKILL)
        status = self.guest.wait()
        asked = self.ending
        log.info("the guest has ended with status %d", status)
        for number, channel in self.channels.items():
            if channel.wire:
                gone = Done() if isinstance(channel.request, PowerOff) else failure(self.death_notice())
                channel.wire.send(encode(ANSWER, number, gone))
                channel.wire.socket.settimeout(GRACE)
                with contextlib.suppress(OSError):
                    while channel.wire.waiting:
                        channel.wire.socket.sendall(channel.wire.waiting.popleft())
        if not asked:
            log.error("%s", self.death_notice())
        with contextlib.suppress(OSError):
            (self.directory / SOCKET).unlink()

    def death_notice(self) -> GuestError:
        return GuestError(f"the guest kernel has ended{console_tail(self.directory)}")

    # Its time.

    def steer(self) -> None:
        """Stop the guest while nothing is asked of it."""
        if self.clock != "virtual":
            return
        idle = not self.channels and not self.pace
        if idle and not self.stopped:
            boot.stop(self.guest.pid)
        elif self.stopped and not idle:
            boot.resume(self.guest.pid)
            self.standstill = Standstill(time.monotonic())
        self.stopped = idle

    def own_answer(self, answer: Done | Failed) -> None:
        if isinstance(answer, Failed):
            log.error("the agent: %s", answer.message)
            return
        if answer.value == b"null":
            return
        sight = msgspec.json.decode(answer.value, type=Sight)
        now = time.monotonic()
        self.standstill.saw(now, sight)
        self.end_stalled(now, sight)

    def end_stalled(self, now: float, sight: Sight | None) -> None:
        """End each request for which virtual time has stood still too long. No sight: the agent does not get to run."""
        for number, channel in self.channels.items():
            still = now - max(self.standstill.moved, channel.opened)
            if not channel.limit or still < channel.limit or channel.wire is None:
                continue
            running = "; ".join(f"process {one.pid}: {one.command}" for one in sight.running) if sight else ""
            who = f"what spins: {running}" if running else "what spins could not be found out"
            ended = "" if sight else "; the guest was ended, its cluster is to be taken down and up"
            error = StalledError(
                f"virtual time stood still for {still:.0f} s of wall time, {who}. A program that computes or polls "
                "without end stops the virtual clock: let it wait, give --cpu-speed, --clock real or a longer --limit"
                f"{ended}"
            )
            log.warning("request %d: %s", number, error)
            channel.wire.send(encode(ANSWER, number, failure(error)))
            channel.wire = None
            self.end(number, channel)
            if sight is None:
                self.alive = False

    def timeout(self) -> float | None:
        """Seconds until `tick` has something to do."""
        now = time.monotonic()
        times = [channel.kill_at for channel in self.channels.values() if channel.kill_at]
        limits = [channel.limit for channel in self.channels.values() if channel.limit and channel.wire]
        if self.clock == "virtual" and limits:
            times.append(self.standstill.next(now, min(limits)))
        else:
            self.standstill.rest()
        return max(0.0, min(times) - now) if times else None

    def tick(self) -> None:
        now = time.monotonic()
        for number, channel in self.channels.items():
            if channel.kill_at and now >= channel.kill_at:
                channel.kill_at = now + GRACE
                self.line.send(encode(CONTROL, number, End(kill=True)))
        match self.standstill.due(now):
            case "look":
                self.line.send(encode(REQUEST, 0, Opening(Look(), 0)))
            case "nudge":
                boot.nudge(self.guest.pid)
            case "give up":
                self.end_stalled(now, None)


def bound_to(directory: Path, use: Callable[[str], object]) -> None:
    """Bind or connect to the cluster's socket, however long its path: the kernel takes 107 bytes of one."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        use(f"/proc/self/fd/{descriptor}/{SOCKET}")
    finally:
        os.close(descriptor)


def console_tail(directory: Path, lines: int = 12) -> str:
    """The last lines of the guest's console, as the end of a message."""
    try:
        text = (directory / CONSOLE).read_bytes()[-8192:].decode(errors="replace")
    except OSError:
        return " and left no console"
    last = [line.rstrip() for line in text.splitlines() if line.strip() and not STACK.search(line)][-lines:]
    return "; the last lines of its console:\n  " + "\n  ".join(last) if last else "; its console is empty"


def supervise(
    directory: Path, init: Path, *, kernel: Path, clock: Clock, memory: str, pace: bool, up: Callable[[], None]
) -> None:
    """Boot a guest and serve it until it ends. `up` is called once the agent answers.

    Raises GuestError where the guest does not come up.
    """
    os.umask(0o077)
    handler = logging.handlers.RotatingFileHandler(directory / LOG, maxBytes=LOG_BYTES, backupCount=1, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.propagate = False
    log.setLevel(logging.INFO)
    # Two pairs: the kernel reads without waiting and writes with waiting, which one open file cannot do.
    (hear, spoken), (say, heard) = socket.socketpair(), socket.socketpair()
    for end in (spoken, say):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    script = os.open(init, os.O_RDONLY)
    spaceless = Path(f"/proc/{os.getpid()}/fd/{script}")  # the kernel's command line holds no spaces
    (directory / CONSOLE).touch()
    os.umask(0)  # the guest's processes have their own
    guest = boot.boot(
        kernel, spaceless, (heard.fileno(), spoken.fileno()), clock=clock, memory=memory, console=directory / CONSOLE
    )
    os.umask(0o077)
    spoken.close()
    heard.close()
    log.info("guest kernel %s, process %d, %s clock", kernel, guest.pid, clock)
    supervisor = Supervisor(directory, guest, (hear, say), clock, pace)
    late = time.monotonic() + BOOT_SECONDS
    while supervisor.alive and not supervisor.ready and time.monotonic() < late:
        for key, events in supervisor.selector.select(1.0):
            key.data(events)
    if not supervisor.ready:
        guest.kill()
        guest.wait()
        what = "ended" if not supervisor.alive else f"did not answer within {BOOT_SECONDS:.0f} s"
        raise GuestError(f"the guest kernel {what} while it booted{console_tail(directory)}")
    log.info("the agent answers")
    os.close(script)
    supervisor.listen()
    supervisor.steer()
    up()
    supervisor.serve()
