"""A user-space path: messages as Ethernet frames over AF_PACKET, with a reliable delivery of their own instead of TCP.

Each connection numbers its frames. The receiver acknowledges all that came in order, names the first one that is
missing, and grants credit: the number of the first frame it has no room for. The sender keeps a frame, in memory that
is pinned where the protocol registers memory, until it is acknowledged, and sends it again when the receiver misses it
or nothing is heard for a while. Nothing works in the background: a node's connections are served when it waits for one.

A frame carries as many bytes of header as TCP's packets do, so that both paths load a cable alike.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import select
import socket
import struct
import zlib
from collections import deque
from time import monotonic_ns
from typing import TYPE_CHECKING

from emulator.errors import WorkloadError
from emulator.linux import mlock
from emulator.workload.connection import HEADER_BYTES
from emulator.workload.sockets import SO_RCVBUFFORCE, SO_SNDBUFFORCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from emulator.workload.connection import Connection, Port

ETHERTYPE = 0x88B5
"""IEEE 802: for local experiments."""
FRAME = struct.Struct("!6s6sHHBxIIIHI")
"""Receiver and sender on the Ethernet, ethertype; connection, kind, number of the frame, first frame not yet received,
first frame there is no room for, bytes of payload, their checksum (0: none)."""
PADDING = bytes(HEADER_BYTES - FRAME.size)

DATA, ACKNOWLEDGEMENT, MISSING, PROBE = range(4)
"""Kinds of frames. MISSING: an acknowledgement that asks for its frame at once. PROBE: asks for an acknowledgement."""
LAST = 0x80
"""With DATA: the last frame of a message, to be acknowledged at once."""

PATIENCE_NS = 5_000_000
"""After a round trip and a full window with no answer, what was sent counts as lost."""
MOST_PATIENCE_NS = 1_000_000_000
TRIES = 20
"""Times in a row that nobody answers, each wait twice as long, before the run ends."""
AGAIN = 16
"""Frames that are sent again at once when nobody answers."""
SMALLEST_WINDOW = 16

TCP_INFO_TOTAL_RETRANS = struct.Struct("=100xI")


class Delivery:
    """One end of a connection: the state of its reliable delivery, without any I/O.

    `emit` is called with each frame that has to go out. Numbers count frames, from 0.
    """

    def __init__(self, window: int, size: int, emit: Callable[[int, int, memoryview], None], pinned: bool) -> None:
        """`window`: frames under way, and room for frames not yet taken. `size`: bytes of payload a frame holds."""
        self.window = window
        self.size = size
        self.emit = emit
        self.memory = mmap.mmap(-1, window * size)
        if pinned:
            mlock(self.memory, window * size)
        self.slots = memoryview(self.memory)
        self.lengths = [0] * window
        self.marks = [0] * window
        # What this end sends.
        self.next = 0
        self.acknowledged = 0
        self.granted = window
        self.sent_again = 0
        # What it receives.
        self.expected = 0
        self.ready: deque[memoryview] = deque()
        self.ready_bytes = 0
        self.early: dict[int, bytes] = {}
        self.owed = 0
        """Frames received since the last acknowledgement."""
        self.told = window
        """The credit that was granted last."""

    @property
    def blocked(self) -> bool:
        """Whether the next frame has to wait."""
        return self.next >= self.granted or self.next - self.acknowledged >= self.window

    @property
    def grant(self) -> int:
        return self.expected + self.window - len(self.ready)

    def send(self, payload: memoryview, last: bool) -> None:
        """Send the next frame; `blocked` must be false."""
        slot = self.next % self.window
        self.slots[slot * self.size : slot * self.size + len(payload)] = payload
        self.lengths[slot], self.marks[slot] = len(payload), LAST if last else 0
        self.next += 1
        self._emit_data(self.next - 1)

    def take(self, view: memoryview) -> int:
        """Move what has come, in order, into `view`; returns the bytes moved."""
        got = 0
        while self.ready and got < len(view):
            first = self.ready[0]
            count = min(len(first), len(view) - got)
            view[got : got + count] = first[:count]
            got += count
            if count == len(first):
                self.ready.popleft()
            else:
                self.ready[0] = first[count:]
        self.ready_bytes -= got
        if self.grant - self.told >= self.window // 2:
            self._acknowledge(ACKNOWLEDGEMENT)
        return got

    def hear(self, kind: int, number: int, acknowledged: int, granted: int, payload: bytes) -> bool:
        """A frame has come. Returns whether it says that the other end has received more."""
        self.granted = max(self.granted, granted)
        progress = self.acknowledged < acknowledged <= self.next
        if progress:
            self.acknowledged = acknowledged
        if kind & ~LAST == DATA:
            self._receive(number, payload, bool(kind & LAST))
        elif kind == MISSING and self.acknowledged <= acknowledged < self.next:
            self.sent_again += 1
            self._emit_data(acknowledged)
        elif kind == PROBE:
            self._acknowledge(ACKNOWLEDGEMENT)
        return progress

    def silence(self) -> None:
        """Nobody has answered for long: send again what may be lost, or ask."""
        outstanding = range(self.acknowledged, min(self.next, self.acknowledged + AGAIN))
        for number in outstanding:
            self.sent_again += 1
            self._emit_data(number, LAST)
        if not outstanding:
            self._emit(PROBE, self.next, memoryview(b""))

    def _receive(self, number: int, payload: bytes, last: bool) -> None:
        if number < self.expected or number in self.early:
            self._acknowledge(ACKNOWLEDGEMENT)
            return
        if number >= self.expected + self.window:
            return  # never granted
        self.owed += 1
        self.early[number] = payload
        if number > self.expected:
            # A frame is asked for once, when the first one after it comes; should that be lost, silence tells.
            if len(self.early) == 1:
                self._acknowledge(MISSING)
            return
        while self.expected in self.early:
            whole = self.early.pop(self.expected)
            self.expected += 1
            if whole:
                self.ready.append(memoryview(whole))
                self.ready_bytes += len(whole)
        if self.early:
            self._acknowledge(MISSING)
        elif last or self.owed >= self.window // 4:
            self._acknowledge(ACKNOWLEDGEMENT)

    def _acknowledge(self, kind: int) -> None:
        self._emit(kind, self.next, memoryview(b""))

    def _emit_data(self, number: int, mark: int = 0) -> None:
        slot = number % self.window
        start = slot * self.size
        self._emit(DATA | self.marks[slot] | mark, number, self.slots[start : start + self.lengths[slot]])

    def _emit(self, kind: int, number: int, payload: memoryview) -> None:
        self.owed, self.told = 0, self.grant
        self.emit(kind, number, payload)


class UserSpaceSocket:
    """One node's end of a connection. The methods are those of a socket that `Transport` and `Node` call."""

    def __init__(
        self, endpoint: Endpoint, number: int, ends: Connection, is_a: bool, window_bytes: int, pinned: bool
    ) -> None:
        port, far = (ends.a_port, ends.b_port) if is_a else (ends.b_port, ends.a_port)
        assert port
        assert far
        way, back = (ends.a_to_b, ends.b_to_a) if is_a else (ends.b_to_a, ends.a_to_b)
        size = way.mtu - (HEADER_BYTES - 14)
        window = max(SMALLEST_WINDOW, -(-window_bytes // size))
        self.endpoint = endpoint
        self.number = number
        self.raw = endpoint.open(port, window * (way.mtu + 1024))
        self.addresses = far.address, port.address
        self.delivery = Delivery(window, size, self._emit, pinned)
        self.low_water = 1
        self.patience_ns = PATIENCE_NS + way.delay_ns + back.delay_ns + way.wire_ns(window * size)
        self.waits_since = 0
        """When the oldest frame that waits for an answer was sent, or an answer last came; 0: none waits."""
        self.tries = 0

    def sendall(self, data: bytes | bytearray | memoryview) -> None:
        view, size = memoryview(data).cast("B"), self.delivery.size
        for start in range(0, len(view), size):
            self._send(view[start : start + size], start + size >= len(view))

    def open(self) -> None:
        """Make a connection anew: a frame there, its acknowledgement back."""
        self._send(memoryview(b""), True)
        self.endpoint.serve_until(lambda: self.delivery.acknowledged == self.delivery.next)

    def recv_into(self, view: memoryview, _size: int = 0, _flags: int = 0) -> int:
        """Fills `view`."""
        got = self.delivery.take(view)
        while got < len(view):
            self.endpoint.serve_until(lambda: bool(self.delivery.ready))
            got += self.delivery.take(view[got:])
        return got

    def fileno(self) -> int:
        """What `Endpoint.poll` knows it by."""
        return self.number

    @property
    def readable(self) -> bool:
        return self.delivery.ready_bytes >= self.low_water

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if (level, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT):
            self.low_water = value

    def getsockopt(self, _level: int, option: int, _size: int = 0) -> bytes:
        """As TCP answers: what it has sent again, in TCP_INFO."""
        assert option == socket.TCP_INFO
        return TCP_INFO_TOTAL_RETRANS.pack(self.delivery.sent_again)

    def hear(self, frame: memoryview) -> None:
        """A frame for this connection has come."""
        _, _, _, _, kind, number, acknowledged, granted, size, checksum = FRAME.unpack_from(frame)
        payload = bytes(frame[HEADER_BYTES : HEADER_BYTES + size])
        if len(payload) < size or (checksum and zlib.crc32(payload) != checksum):
            return  # as good as lost
        self.tries = 0
        if self.delivery.hear(kind, number, acknowledged, granted, payload):
            self.waits_since = monotonic_ns()
        if self.delivery.acknowledged == self.delivery.next and not self.delivery.blocked:
            self.waits_since = 0

    def check(self, now: int) -> None:
        """Act on a silence that has lasted too long. Raises WorkloadError where it has for ever."""
        if now < self.deadline:
            return
        self.tries += 1
        if self.tries > TRIES:
            raise WorkloadError("the user-space path got no answer: the other end has gone, or its cable is down")
        self.waits_since = now
        self.delivery.silence()

    @property
    def deadline(self) -> int:
        """When a silence lasts too long."""
        return self.waits_since + min(self.patience_ns << self.tries, max(self.patience_ns, MOST_PATIENCE_NS))

    def _send(self, payload: memoryview, last: bool) -> None:
        if self.delivery.blocked:
            self.waits_since = self.waits_since or monotonic_ns()
            self.endpoint.serve_until(lambda: not self.delivery.blocked)
        self.delivery.send(payload, last)
        self.waits_since = self.waits_since or monotonic_ns()

    def _emit(self, kind: int, number: int, payload: memoryview) -> None:
        delivery = self.delivery
        checksum = zlib.crc32(payload) if self.endpoint.checksum and payload else 0
        head = FRAME.pack(
            *self.addresses,
            ETHERTYPE,
            self.number,
            kind,
            number,
            delivery.expected,
            delivery.told,
            len(payload),
            checksum,
        )
        try:
            self.raw.sendmsg((head, PADDING, payload))
        except OSError as error:
            if error.errno not in (errno.ENOBUFS, errno.ENETDOWN):
                raise
            # A queue was full, or the cable is down: lost, and sent again like all that is lost.


class Endpoint:
    """All user-space connections of a node, and the raw sockets that carry them. Made inside the node's namespace."""

    def __init__(self, checksum: bool, busy: bool) -> None:
        """`checksum`: over each frame's payload, computed and compared. `busy`: never sleep while waiting."""
        self.checksum = checksum
        self.busy = busy
        self.sockets: dict[int, UserSpaceSocket] = {}
        self._raw: dict[str, socket.socket] = {}
        self._by_descriptor: dict[int, socket.socket] = {}
        self._poll = select.poll()
        self._buffer = memoryview(bytearray(1 << 16))

    def open(self, port: Port, room: int) -> socket.socket:
        """The raw socket of an interface, with room for so many more bytes."""
        raw = self._raw.get(port.interface)
        if raw is None:
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC)
            raw.bind((port.interface, ETHERTYPE))
            self._raw[port.interface] = self._by_descriptor[raw.fileno()] = raw
            self._poll.register(raw, select.POLLIN)
        for option, force in ((socket.SO_SNDBUF, SO_SNDBUFFORCE), (socket.SO_RCVBUF, SO_RCVBUFFORCE)):
            # The kernel doubles what is set.
            raw.setsockopt(
                socket.SOL_SOCKET, force, min(raw.getsockopt(socket.SOL_SOCKET, option) // 2 + room, 1 << 30)
            )
        return raw

    def poll(self) -> Poll:
        """In place of select.poll(), for this node's connections."""
        return Poll(self)

    def serve_until(self, enough: Callable[[], bool]) -> None:
        """Serve all connections until `enough()`."""
        while not enough():
            self._serve(-1)

    def serve_beside(self, descriptor: int) -> None:
        """Serve all connections until `descriptor` can be read."""
        self._poll.register(descriptor, select.POLLIN)
        try:
            while not self._serve(descriptor):
                pass
        finally:
            self._poll.unregister(descriptor)

    def _serve(self, descriptor: int) -> bool:
        """Wait for frames and take them; returns whether `descriptor` is ready.

        No receive call finds nothing: on the virtual clock one that fails takes time.
        """
        waiting = [sock for sock in self.sockets.values() if sock.waits_since]
        timeout_ms: float | None = None
        if self.busy:
            timeout_ms = 0
        elif waiting:
            timeout_ms = max(0, min(sock.deadline for sock in waiting) - monotonic_ns()) / 1_000_000 + 1
        found = False
        ready = self._poll.poll(timeout_ms)
        for which, _ in ready:
            if which == descriptor:
                found = True
                continue
            with contextlib.suppress(OSError):  # the interface went down
                size = self._by_descriptor[which].recv_into(self._buffer)
                number = FRAME.unpack_from(self._buffer)[3] if size >= HEADER_BYTES else -1
                if sock := self.sockets.get(number):
                    sock.hear(self._buffer[:size])
        if not ready:
            if self.busy:
                os.sched_yield()
            now = monotonic_ns()
            for sock in waiting:
                sock.check(now)
        return found


class Poll:
    """What select.poll() offers of it, over user-space connections."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.registered: dict[int, UserSpaceSocket] = {}

    def register(self, descriptor: int, _events: int) -> None:
        self.registered[descriptor] = self.endpoint.sockets[descriptor]

    def unregister(self, descriptor: int) -> None:
        del self.registered[descriptor]

    def poll(self) -> list[tuple[int, int]]:
        """Those with a message, once there is one."""
        self.endpoint.serve_until(lambda: any(sock.readable for sock in self.registered.values()))
        return [(number, select.POLLIN) for number, sock in self.registered.items() if sock.readable]
