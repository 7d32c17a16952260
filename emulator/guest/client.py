"""What the commands of emu ask of a standing guest. One connection to its supervisor for each request."""

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from emulator.errors import GuestError
from emulator.guest.protocol import (
    ANSWER,
    PROGRESS,
    REQUEST,
    Answer,
    Apply,
    Change,
    Decoder,
    Done,
    Exited,
    Failed,
    Frame,
    Inspect,
    Look,
    Opening,
    PowerOff,
    Probe,
    Progress,
    Request,
    Run,
    Set,
    Sight,
    State,
    Status,
    encode,
    rebuild,
    unpack,
)
from emulator.guest.supervisor import LOG, bound_to
from emulator.plan.model import Plan
from emulator.plan.model import encode as encode_plan
from emulator.state import translated

LIMIT = 60.0
"""Seconds of wall time for which virtual time may stand still before a request is ended."""

Report = Callable[[str, float], None]


def connect(directory: Path) -> "Client":
    """The client of the guest that belongs to the cluster in `directory`. Raises GuestError where none runs."""
    client = Client(directory.resolve())
    client.status()
    return client


class Connection:
    """One request under way."""

    def __init__(self, directory: Path, request: Request, limit: float) -> None:
        self.directory = directory
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.decoder = Decoder()
        try:
            bound_to(directory, self.socket.connect)
        except OSError as error:
            self.socket.close()
            raise GuestError(
                f"the guest of the cluster in {directory} does not run ({error.strerror}); take it down with: emu down"
            ) from None
        self.send(REQUEST, Opening(request, limit))

    def send(self, kind: int, payload: object) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # reading tells what has happened
            self.socket.sendall(encode(kind, 0, payload))

    def read(self) -> Iterator[Frame]:
        """What comes next; raises GuestError where that is the end."""
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        if not data:
            raise GuestError(f"the guest's supervisor has ended; see {self.directory / LOG}")
        return self.decoder.feed(data)

    def close(self) -> None:
        self.socket.close()


class Client:
    """Asks one guest.

    Every method raises GuestError where the guest has ended, StalledError where virtual time stood still for `limit`
    seconds of wall time (0: no limit), and what the request itself may raise.
    """

    def __init__(self, directory: Path, supervisor: int | None = None) -> None:
        self.directory = directory
        self.supervisor = supervisor
        """The pid of the supervisor, if this process started it."""

    def apply(self, plan: Plan, progress: Report | None = None) -> None:
        """Make the plan true inside. Raises FabricError as fabric.apply does."""
        with self._scratch() as scratch:
            path = scratch / "plan.json"
            with translated(path):
                path.write_bytes(encode_plan(plan))
            self._ask(Apply(str(path)), progress, limit=0)

    def change(self, plan: Plan, everything: bool) -> None:
        """Go to another plan of the same nodes and cables. Raises FabricError as fabric.change does."""
        with self._scratch() as scratch:
            path = scratch / "plan.json"
            with translated(path):
                path.write_bytes(encode_plan(plan))
            self._ask(Change(str(path), everything))

    def probe(self, ask: bytes, progress: Report | None = None, limit: float = LIMIT) -> bytes:
        """Measure the cables: the JSON of a `fabric.probe.Ask` in, that of a list of its `Found` back."""
        with self._scratch() as scratch:
            found = scratch / "found.json"
            self._ask(Probe(ask, str(found)), progress, limit)
            with translated(found):
                return found.read_bytes()

    def exec(
        self,
        node: str,
        argv: Sequence[str],
        *,
        terminal: bool | None = None,
        environment: dict[bytes, bytes] | None = None,
        directory: Path | None = None,
        writable: Sequence[Path] = (),
        cpu_speed: float | None = None,
        limit: float = LIMIT,
    ) -> int:
        """Run a command in a node, with the caller's standard streams, signals, environment and current directory.

        Returns its exit status; 128 + N where signal N ended it. `terminal`: give it one (default: where the caller's
        standard input and output are one). Raises ClusterError where there is no such node.
        """
        from emulator.guest import terminal as attached  # tty and termios are of use to nothing else

        return attached.attach(
            lambda request: Connection(self.directory, request, limit),
            node,
            [os.fsencode(word) for word in argv],
            terminal=terminal,
            environment=environment,
            directory=directory,
            writable=writable,
            cpu_speed=cpu_speed,
        )

    def run(
        self,
        program: bytes,
        recording: Path,
        progress: Report | None = None,
        limit: float = LIMIT,
        events: bytes = b"",
    ) -> None:
        """Run a workload: an encoded Program in, its recording written to `recording`. Raises WorkloadError.

        `events`: encoded ones of plan.event, that change the cables meanwhile.
        """
        with self._scratch() as scratch:
            path, made = scratch / "program.json", scratch / "recording"
            with translated(path):
                path.write_bytes(program)
            timed = scratch / "events.json"
            if events:
                with translated(timed):
                    timed.write_bytes(events)
            self._ask(Run(str(path), str(made), str(timed) if events else ""), progress, limit)
            with translated(recording):
                shutil.move(made, recording)

    def inspect(self) -> bytes:
        """The JSON of the list of fabric.inspect.CableState. Raises ClusterError where a namespace has gone."""
        return self._ask(Inspect()).value

    def set(self, **values: int) -> None:
        """Set parameters of the guest kernel. Raises GuestError for one it has not.

        syscall_ns and clock_read_ns hold for programs, from now on; a workload always runs without them.
        """
        self._ask(Set(values))

    def look(self) -> Sight:
        """The guest's time, and the processes that want its processor."""
        return msgspec.json.decode(self._ask(Look()).value, type=Sight)

    def status(self) -> State:
        """What the supervisor knows; the guest is not disturbed."""
        return msgspec.json.decode(self._ask(Status()).value, type=State)

    def poweroff(self) -> None:
        """End the guest and its supervisor; both have gone on return."""
        with contextlib.closing(Connection(self.directory, PowerOff(), 0)) as connection:
            self._answer(connection, None)
            with contextlib.suppress(GuestError):
                while True:
                    for _ in connection.read():
                        pass
        if self.supervisor is not None:
            os.waitpid(self.supervisor, 0)
            self.supervisor = None

    def _ask(self, request: Request, progress: Report | None = None, limit: float = LIMIT) -> Done:
        with contextlib.closing(Connection(self.directory, request, limit)) as connection:
            return self._answer(connection, progress)

    def _answer(self, connection: Connection, progress: Report | None) -> Done:
        while True:
            for frame in connection.read():
                if frame.type == PROGRESS and progress:
                    step: Progress = unpack(frame.payload, Progress)
                    progress(step.what, step.share)
                elif frame.type == ANSWER:
                    answer = read_answer(frame)
                    assert isinstance(answer, Done)
                    return answer

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[Path]:
        """A directory of this request's own that the guest sees, too."""
        with translated(self.directory):
            path = Path(tempfile.mkdtemp(dir=self.directory / "scratch"))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def read_answer(frame: Frame) -> Done | Exited:
    """The answer in an ANSWER frame. Raises the error that it is."""
    answer: Answer = unpack(frame.payload, Answer)
    if isinstance(answer, Failed):
        raise rebuild(answer)
    return answer
