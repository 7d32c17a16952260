"""The wire between client, supervisor and agent: frames, on the unix socket and on the serial line alike.

A frame is a header (magic, type, channel, length of the payload) and its payload. A channel is one request: it begins
with a REQUEST, ends with the guest's ANSWER, and carries the command's streams in between. Streams are bounded end to
end: a sender holds at most WINDOW bytes of credit for a stream, which the last reader gives back as it consumes
(`Credit`), so a slow reader holds up nobody else and nothing grows.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import msgspec

from emulator import errors

HEADER: Final = struct.Struct("<BBII")
MAGIC: Final = 0xE5
MAX_PAYLOAD: Final = 8 << 20
"""Bytes. A command line with its environment is at most 2 MiB on Linux; the counters of 2000 cables are 2 MB."""
WINDOW: Final = 1 << 20
"""Bytes of one stream that may be under way, from the sender's read to the receiver's write."""
PIECE: Final = 128 << 10
"""Bytes of a stream in one frame, at most."""

HELLO, REQUEST, CONTROL, PROGRESS, ANSWER, STDIN, STDOUT, STDERR = range(1, 9)
"""Types of frames. An empty STDIN, STDOUT or STDERR ends that stream."""


class ProtocolError(errors.GuestError):
    """What came over the wire is no frame: the guest or a client is not of this emu."""


class Frame(NamedTuple):
    type: int
    channel: int
    payload: bytes


class Apply(msgspec.Struct, tag=True):
    """Make a plan true. Answered by an empty `Done`."""

    plan: str
    """Path of the encoded plan, in the scratch directory."""


class Change(msgspec.Struct, tag=True):
    """Go from the plan that stands to another one with the same nodes and cables. Answered by an empty `Done`."""

    plan: str
    """Path of the encoded plan, in the scratch directory."""
    everything: bool
    """Set all values, whether they differ or not: a change before this one was cut short."""


class Exec(msgspec.Struct, tag=True):
    """Run a command in a node. Answered by `Exited`."""

    node: str
    argv: list[bytes]
    environment: dict[bytes, bytes]
    directory: bytes
    """Where the caller is: mounted there, writable, unless it is the root."""
    umask: int
    writable: list[bytes] = []
    """More directories of the host that the command may write."""
    terminal: tuple[int, int] | None = None
    """Rows and columns; None: three pipes."""
    cpu_speed: float | None = None
    """Multiples of this host's speed; None: as the plan says for the node, 0: computing is free."""


class Run(msgspec.Struct, tag=True):
    """Run a workload. Answered by an empty `Done`."""

    program: str
    """Path of the encoded program, in the scratch directory."""
    recording: str
    """Where the recording goes, in the scratch directory."""
    events: str = ""
    """Path of the encoded events that change the cables meanwhile, in the scratch directory; empty: none."""


class Probe(msgspec.Struct, tag=True):
    """Measure the cables. Answered by `Done` with the JSON of a list of `fabric.probe.Found`."""

    ask: bytes
    """The JSON of a `fabric.probe.Ask`."""
    found: str
    """Where what was found goes, in the scratch directory: thousands of cables are more than a frame holds."""


class Inspect(msgspec.Struct, tag=True):
    """Read the cables back. Answered by `Done` with the JSON of a list of `fabric.inspect.CableState`."""


class Set(msgspec.Struct, tag=True):
    """Set parameters of the guest kernel (/sys/module/*/parameters). Answered by an empty `Done`."""

    values: dict[str, int]


class Look(msgspec.Struct, tag=True):
    """What time is it, and who is running? Answered by `Done` with the JSON of a `Sight`."""


class PowerOff(msgspec.Struct, tag=True):
    """End the guest. Answered by an empty `Done` just before."""


class Status(msgspec.Struct, tag=True):
    """Answered by the supervisor itself: `Done` with the JSON of a `State`."""


Request = Apply | Change | Exec | Run | Probe | Inspect | Set | Look | PowerOff | Status


class Opening(msgspec.Struct):
    """The payload of a REQUEST."""

    request: Request
    limit: float = 60.0
    """Seconds of wall time for which virtual time may stand still; 0: for ever."""


class Signal(msgspec.Struct, tag=True):
    """Send a signal to the command's foreground process group."""

    number: int


class Resize(msgspec.Struct, tag=True):
    """The caller's terminal has another size."""

    rows: int
    columns: int


class Credit(msgspec.Struct, tag=True):
    """So many bytes of a stream have been consumed."""

    stream: int
    count: int


class Close(msgspec.Struct, tag=True):
    """Nobody reads this stream any more: the command's next write to it fails."""

    stream: int


class End(msgspec.Struct, tag=True):
    """The client has gone, or its time is over: end what runs for it, by SIGHUP or by SIGKILL."""

    kill: bool


Control = Signal | Resize | Credit | Close | End


class Progress(msgspec.Struct):
    """How far a request has come."""

    what: str
    share: float
    """0 to 1."""


class Done(msgspec.Struct, tag=True):
    value: bytes = b"null"
    """JSON."""


class Exited(msgspec.Struct, tag=True):
    """How a command ended: its status, or the signal that ended it."""

    status: int
    signal: int = 0


class Failed(msgspec.Struct, tag=True):
    """An error of emulator.errors, by the name of its class."""

    error: str
    message: str


Answer = Done | Exited | Failed


class Running(msgspec.Struct):
    """A process inside that wants the processor."""

    pid: int
    command: str


class Sight(msgspec.Struct):
    """What `Look` saw."""

    now_ns: int
    """CLOCK_MONOTONIC inside, as looking began."""
    looked_ns: int
    """The same as it ended: looking costs some, too."""
    running: list[Running]


class State(msgspec.Struct):
    """What the supervisor knows of its guest."""

    pid: int
    """Of the guest kernel, on the host."""
    clock: Literal["virtual", "real"]
    pace: bool
    stopped: bool
    requests: int
    """Open ones."""


def encode(kind: int, channel: int, payload: Any = b"") -> bytes:
    """One frame; a payload that is not bytes is packed."""
    data = payload if isinstance(payload, bytes) else msgspec.msgpack.encode(payload)
    return HEADER.pack(MAGIC, kind, channel, len(data)) + data


def unpack(data: bytes, kind: Any) -> Any:
    """A packed payload, of the type (or one of the union) `kind`. Raises ProtocolError where it is not."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"a message of another version of emu came over the wire ({error})") from None


class Decoder:
    """Frames out of a byte stream, however it is cut. Holds at most one frame and what came with it."""

    def __init__(self) -> None:
        self.held = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes. Raises ProtocolError at the first byte that cannot be one."""
        held = self.held
        held += data
        at = 0
        try:
            while len(held) - at >= HEADER.size:
                magic, kind, channel, length = HEADER.unpack_from(held, at)
                if magic != MAGIC or not HELLO <= kind <= STDERR or length > MAX_PAYLOAD:
                    raise ProtocolError(f"no frame of emu: {bytes(held[at : at + 16])!r}")
                end = at + HEADER.size + length
                if len(held) < end:
                    break
                with memoryview(held) as view:
                    payload = bytes(view[at + HEADER.size : end])
                at = end
                yield Frame(kind, channel, payload)
        finally:
            del held[:at]

    def close(self) -> None:
        """The stream has ended. Raises ProtocolError where that cut a frame."""
        if self.held:
            raise ProtocolError(f"the wire ended within a frame, after {len(self.held)} bytes of it")


def failure(error: Exception) -> Failed:
    """An error as it goes over the wire; one that is not ours is a fault in emu and says where."""
    if isinstance(error, errors.EmuError):
        return Failed(type(error).__name__, str(error))
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})" if trace is not None else ""
    return Failed("GuestError", f"{type(error).__name__}: {error}{where}; this is a fault in emu")


def rebuild(failed: Failed) -> errors.EmuError:
    """The error that `failure` sent."""
    kind = getattr(errors, failed.error, errors.GuestError)
    return kind(failed.message) if issubclass(kind, errors.EmuError) else errors.GuestError(failed.message)
