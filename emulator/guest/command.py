"""A command of `exec`, as the agent holds it: its process, its three streams or its terminal, and how it ends."""

import contextlib
import fcntl
import os
import select
import signal
import struct
import termios
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from emulator import linux
from emulator.fabric.enter import enter
from emulator.guest import mounts
from emulator.guest.protocol import (
    PIECE,
    STDERR,
    STDIN,
    STDOUT,
    WINDOW,
    Close,
    Control,
    Credit,
    End,
    Exec,
    Exited,
    Failed,
    Resize,
    Signal,
    failure,
)
from emulator.plan.model import Node

if TYPE_CHECKING:
    from emulator.guest.agent import Agent

PIPE_BYTES = 256 << 10
"""Pipes of this size let a command write on while the agent sends; Linux gives them to anyone up to 1 MiB."""


class Command:
    """A running command. Whatever it does, it ends with one answer on its channel."""

    def __init__(self, agent: "Agent", channel: int, request: Exec, node: Node, hosts: Path) -> None:
        self.agent = agent
        self.channel = channel
        self.waiting = bytearray()
        """Standard input that the command has not taken yet; its credit bounds it."""
        self.taken = 0
        """Bytes of standard input for which credit is still to be given back."""
        self.input_ends = False
        self.status: int | None = None
        self.credit = {STDOUT: WINDOW, STDERR: WINDOW}
        self.terminal = request.terminal is not None
        trouble, trouble_end = os.pipe()
        if request.terminal is not None:
            master, slave = os.openpty()
            resize(master, *request.terminal)
            self.input = master
            self.outputs = {STDOUT: os.dup(master)}
            theirs = (slave, slave, slave)
        else:
            their_input, self.input = os.pipe()
            out, their_out = os.pipe()
            err, their_err = os.pipe()
            for end in (self.input, out):
                with contextlib.suppress(OSError):
                    fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            self.outputs = {STDOUT: out, STDERR: err}
            theirs = (their_input, their_out, their_err)
        self.pid = os.fork()
        if self.pid == 0:
            become(request, node, hosts, theirs, trouble_end)
        self.trouble = trouble
        for end in {*theirs, trouble_end}:
            os.close(end)
        for end in (self.input, *self.outputs.values()):
            os.set_blocking(end, False)
        agent.watch(self.input, 0, self.hung_up)
        for stream in self.outputs:
            self.listen(stream)

    def listen(self, stream: int) -> None:
        self.agent.watch(self.outputs[stream], select.POLLIN, lambda: self.pump(stream))

    def pump(self, stream: int) -> None:
        """Send what the command has written, as far as credit goes; all there is once the command has ended."""
        descriptor = self.outputs[stream]
        while self.credit[stream] > 0:
            try:
                data = os.read(descriptor, min(PIECE, self.credit[stream]))
            except BlockingIOError:
                if self.status is not None:
                    self.leave(stream)
                return
            except OSError:  # EIO: the last process has closed the terminal
                data = b""
            self.agent.send(stream, self.channel, data)
            if not data:
                self.agent.forget(descriptor)
                os.close(descriptor)
                del self.outputs[stream]
                self.finish()
                return
            self.credit[stream] -= len(data)
            if self.status is None:
                break
        if self.credit[stream] <= 0:
            self.agent.forget(descriptor)

    def leave(self, stream: int) -> None:
        """The command has ended; what a process it left behind still writes is read away, so that it can live on."""
        descriptor = self.outputs.pop(stream)
        if self.terminal:
            self.agent.forget(descriptor)
            os.close(descriptor)
        else:
            self.agent.discard(descriptor)
        self.finish()

    def write(self, data: bytes) -> None:
        """Standard input from the client; nothing ends it."""
        if self.input < 0:
            return
        if not data:
            self.input_ends = True
            if self.terminal:
                self.waiting += b"\x04"
        self.waiting += data
        self.feed()

    def feed(self) -> None:
        """Give the command of its standard input what it takes."""
        try:
            while self.waiting:
                count = os.write(self.input, self.waiting[:PIECE])
                del self.waiting[:count]
                self.taken += count
        except BlockingIOError:
            pass
        except OSError:
            self.close_input()
            self.agent.send(STDIN, self.channel, b"")
            return
        if self.taken >= WINDOW // 4:
            self.agent.control(self.channel, Credit(STDIN, self.taken))
            self.taken = 0
        if self.waiting:
            self.agent.watch(self.input, select.POLLOUT, self.feed)
        elif self.input_ends and not self.terminal:
            self.close_input()
        else:
            self.agent.watch(self.input, 0, self.hung_up)

    def hung_up(self) -> None:
        """Nobody reads the command's standard input any more."""
        if self.terminal:
            self.agent.forget(self.input)
            return
        self.close_input()
        self.agent.send(STDIN, self.channel, b"")

    def close_input(self) -> None:
        if self.input >= 0:
            self.agent.forget(self.input)
            os.close(self.input)
            self.input = -1
            self.waiting.clear()

    def control(self, order: Control) -> None:
        match order:
            case Credit(stream, count) if stream in self.outputs:
                self.credit[stream] += count
                if self.status is not None:
                    self.pump(stream)
                else:
                    self.listen(stream)
            case Signal(number):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.foreground(), number)
            case Resize(rows, columns) if self.terminal and self.input >= 0:
                resize(self.input, rows, columns)
            case Close(stream) if stream in self.outputs:
                self.drop(stream)
            case End(kill):
                self.agent.end_session(self.pid, kill)
                self.close_input()
                for stream in list(self.outputs):
                    self.drop(stream)
            case _:
                pass

    def drop(self, stream: int) -> None:
        """Close what nobody reads, so that the command's next write fails as it would on the caller's own machine."""
        descriptor = self.outputs.pop(stream)
        self.agent.forget(descriptor)
        os.close(descriptor)
        self.finish()

    def foreground(self) -> int:
        """The process group that signals go to."""
        if self.terminal and self.input >= 0:
            with contextlib.suppress(OSError):
                return struct.unpack("i", fcntl.ioctl(self.input, termios.TIOCGPGRP, b"\0" * 4))[0] or self.pid
        return self.pid

    def ended(self, status: int) -> None:
        """The process has been reaped."""
        self.status = status
        for stream in list(self.outputs):
            self.pump(stream)
        self.finish()

    def finish(self) -> None:
        """Answer, once the process has ended and all its output is on its way."""
        if self.status is None or self.outputs or self.channel not in self.agent.running:
            return
        self.close_input()
        said = os.read(self.trouble, 65536)
        os.close(self.trouble)
        code = os.waitstatus_to_exitcode(self.status)
        answer: Exited | Failed = Exited(code) if code >= 0 else Exited(128 - code, -code)
        if said:
            name, _, message = said.decode(errors="replace").partition("\0")
            answer = Failed(name, message)
        self.agent.answer(self.channel, answer)


def resize(descriptor: int, rows: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def become(request: Exec, node: Node, hosts: Path, streams: tuple[int, int, int], trouble: int) -> NoReturn:
    """In the new process: be the command, in the node. What goes wrong before that is no status of the command."""
    try:
        os.setsid()
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        signal.set_wakeup_fd(-1)
        if request.terminal is not None:
            fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
        kept = os.dup(trouble) if trouble < 3 else trouble
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, kept)
        os.closerange(kept + 1, 1024)
        enter(node.name, node.namespace, hosts)
        for path in (*request.writable, request.directory):
            if warning := mounts.mount_writable(os.fsdecode(path)):
                os.write(2, f"emu: warning: {warning}\n".encode(errors="surrogateescape"))
        os.chdir(request.directory)
        os.umask(request.umask)
        speed = node.cpu_speed if request.cpu_speed is None else request.cpu_speed
        if speed:
            linux.set_cpu_speed(speed)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        execute(request.argv, request.environment)
    except BaseException as error:
        failed = failure(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        os.write(trouble, f"{failed.error}\0{failed.message}".encode(errors="replace"))
        os._exit(1)


def execute(argv: list[bytes], environment: dict[bytes, bytes]) -> NoReturn:
    """Run the command as a shell would, with a shell's message and status where it cannot be."""
    directories = environment.get(b"PATH", os.defpath.encode()).split(b":")
    try:
        try:
            os.execvpe(argv[0], argv, environment)
        except OSError as error:
            if error.errno != 8:  # ENOEXEC: a script without a first line, which execvp(3) gives to the shell
                raise
            os.execve("/bin/sh", [b"sh", *argv], environment)
    except (OSError, ValueError) as error:
        reason, status = getattr(error, "strerror", None) or str(error), 126
        if b"/" not in argv[0] and not any(os.access(place + b"/" + argv[0], os.F_OK) for place in directories):
            reason, status = "command not found", 127  # also where a directory of PATH may not be searched (EACCES)
        elif isinstance(error, FileNotFoundError | NotADirectoryError):
            status = 127
    os.write(2, b"emu: " + argv[0] + b": " + reason.encode() + b"\n")
    os._exit(status)
