"""The caller's end of `exec`: streams, signals and the terminal, carried to a command in the guest and back."""

import contextlib
import errno
import os
import select
import signal
import stat
import termios
import tty
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from emulator.errors import StateError
from emulator.guest.protocol import (
    ANSWER,
    CONTROL,
    PIECE,
    STDERR,
    STDIN,
    STDOUT,
    WINDOW,
    Close,
    Control,
    Credit,
    Exec,
    Exited,
    Resize,
    Signal,
    unpack,
)

if TYPE_CHECKING:
    from emulator.guest.client import Connection

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
PIPE_BUF = 4096
"""Bytes that a pipe which is ready to be written takes without making the writer wait (pipe(7))."""


def attach(
    connect: "Callable[[Exec], Connection]",
    node: str,
    argv: list[bytes],
    *,
    terminal: bool | None,
    environment: dict[bytes, bytes] | None,
    directory: Path | None,
    writable: Sequence[Path],
    cpu_speed: float | None,
) -> int:
    """Run a command with the caller's streams and return its status. See `client.Client.exec`."""
    open_standard_streams()
    if terminal is None:
        terminal = os.isatty(0) and os.isatty(1)
    mask = os.umask(0o077)
    os.umask(mask)
    request = Exec(
        node=node,
        argv=argv,
        environment=dict(os.environb) if environment is None else environment,
        directory=os.path.realpath(os.fsencode(directory)) if directory else current_directory(),
        umask=mask,
        writable=[os.path.realpath(os.fsencode(path)) for path in writable],
        terminal=window() if terminal else None,
        cpu_speed=cpu_speed,
    )
    with caught(terminal) as wake, contextlib.closing(connect(request)) as connection, raw(terminal):
        return Attached(connection, wake).serve()


class Attached:
    """The loop of one attached command."""

    def __init__(self, connection: "Connection", wake: int) -> None:
        self.connection = connection
        self.wake = wake
        self.pending: dict[int, deque[memoryview]] = {STDOUT: deque(), STDERR: deque()}
        self.owed = {STDOUT: 0, STDERR: 0}
        """Bytes written for which the command has not been given credit again."""
        self.credit = WINDOW
        self.reading = True
        self.trouble: OSError | None = None

    def serve(self) -> int:
        answer: Exited | None = None
        while answer is None or any(self.pending.values()):
            poll = select.poll()
            poll.register(self.wake, select.POLLIN)
            if answer is None:
                poll.register(self.connection.socket, select.POLLIN)
                if self.reading and self.credit:
                    poll.register(0, select.POLLIN)
            for stream, waiting in self.pending.items():
                if waiting:
                    poll.register(stream - STDOUT + 1, select.POLLOUT)
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self.wake in ready:
                self.pass_signals()
            if self.connection.socket.fileno() in ready:
                answer = self.hear()
            if 0 in ready:
                self.read()
            for stream in (STDOUT, STDERR):
                if stream - STDOUT + 1 in ready:
                    self.write(stream)
        if self.trouble:
            raise StateError(f"the command's output could not be written: {self.trouble.strerror}")
        return answer.status

    def hear(self) -> Exited | None:
        from emulator.guest.client import read_answer

        for frame in self.connection.read():
            if frame.type == ANSWER:
                answer = read_answer(frame)
                assert isinstance(answer, Exited)
                return answer
            if frame.type in self.pending and frame.payload:
                self.pending[frame.type].append(memoryview(frame.payload))
            elif frame.type == STDIN:
                self.reading = False
            elif frame.type == CONTROL:
                order: Control = unpack(frame.payload, Control)
                if isinstance(order, Credit):
                    self.credit += order.count
        return None

    def read(self) -> None:
        """Pass on some standard input. A caller that may not read it (EIO: it is in the background) has none."""
        try:
            data = os.read(0, min(PIECE, self.credit))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.credit -= len(data)
        self.reading = bool(data)
        self.connection.send(STDIN, data)

    def write(self, stream: int) -> None:
        """Write some of what the command has written, without waiting for who reads it."""
        waiting = self.pending[stream]
        descriptor = stream - STDOUT + 1
        piece = len(waiting[0]) if stat.S_ISREG(os.fstat(descriptor).st_mode) else PIPE_BUF
        try:
            count = os.write(descriptor, waiting[0][:piece])
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EPIPE:
                self.trouble = error
            waiting.clear()
            self.control(Close(stream))
            return
        if count == len(waiting[0]):
            waiting.popleft()
        else:
            waiting[0] = waiting[0][count:]
        self.owed[stream] += count
        if self.owed[stream] >= WINDOW // 4:
            self.control(Credit(stream, self.owed[stream]))
            self.owed[stream] = 0

    def pass_signals(self) -> None:
        for number in os.read(self.wake, 4096):
            self.control(Resize(*window()) if number == signal.SIGWINCH else Signal(number))

    def control(self, order: Control) -> None:
        self.connection.send(CONTROL, order)


@contextlib.contextmanager
def caught(terminal: bool) -> Iterator[int]:
    """Have the signals that are passed on arrive as bytes on a descriptor."""
    wake, end = os.pipe()
    os.set_blocking(end, False)
    numbers = (*FORWARDED, signal.SIGWINCH) if terminal else FORWARDED
    before = {number: signal.getsignal(number) for number in numbers}
    old = signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    for number in numbers:
        if before[number] is not signal.SIG_IGN:  # nohup(1), and shells with commands in the background
            signal.signal(number, lambda *_: None)
    try:
        yield wake
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(old)
        os.close(wake)
        os.close(end)


@contextlib.contextmanager
def raw(terminal: bool) -> Iterator[None]:
    """The caller's terminal in raw mode: every key goes to the command's own terminal, Ctrl-C and Ctrl-Z included."""
    if not terminal or not os.isatty(0):
        yield
        return
    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def window() -> tuple[int, int]:
    """Rows and columns of the caller's terminal."""
    for descriptor in (0, 1, 2):
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(descriptor)
            return rows, columns
    return 24, 80


def current_directory() -> bytes:
    """Where the caller is; the root where that directory has been removed."""
    try:
        return os.fsencode(Path.cwd())
    except FileNotFoundError:
        return b"/"


def open_standard_streams() -> None:
    """A caller may have closed its standard streams: nothing else may take their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
