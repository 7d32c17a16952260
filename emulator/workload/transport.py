"""A connection under a protocol: it looks like the socket it stands in for, does what the protocol asks for and
charges its costs. What a send call or a receive call takes is a message here.

Done for real: memory is pinned, connections are opened and closed, bytes are copied and their checksum computed. On
the virtual clock that work is free, so each cost is slept, too, by the end that has it.
"""

from __future__ import annotations

import errno
import mmap
import os
import socket
import zlib
from time import monotonic_ns
from typing import TYPE_CHECKING, cast

from emulator.errors import WorkloadError
from emulator.linux import mlock, munlock, sleep_until
from emulator.workload.sockets import SO_RCVBUFFORCE, SO_SNDBUFFORCE, buffer_bytes
from emulator.workload.userspace import Endpoint, UserSpaceSocket

if TYPE_CHECKING:
    from emulator.workload.connection import Connection
    from emulator.workload.program import Program
    from emulator.workload.protocol import Protocol

FIRST_PORT = 20_000
"""Where nodes listen for messages that open their own connections: below the ports that the kernel gives by itself."""
DIAL_TRIES = 1000
"""A millisecond apart: on the real clock the other node may not listen yet."""


def under_protocol(
    program: Program, index: int, sockets: dict[int, socket.socket]
) -> tuple[dict[int, socket.socket], Endpoint | None]:
    """The sockets of node `index` as its patterns will use them, and what serves them on a user-space path. Memory that
    is registered once is pinned here, before the first token. Raises WorkloadError."""
    protocol = program.protocol
    if not protocol:
        return sockets, None
    memory = Memory(max(protocol.region_bytes, 1))
    if protocol.pin == "once":
        memory.pin(protocol.region_bytes)
        sleep_until(monotonic_ns() + protocol.region_ns)
    ends = {number: program.connections[number] for number in sockets}
    endpoint = Endpoint(protocol.checksum, protocol.busy) if protocol.user_space else None
    if endpoint:
        window = buffer_bytes(program)
        endpoint.sockets = {
            number: UserSpaceSocket(endpoint, number, end, index == end.a, window, protocol.pin == "once")
            for number, end in ends.items()
        }
    below = cast(dict[int, socket.socket], endpoint.sockets) if endpoint else sockets
    found = {
        number: cast(socket.socket, Transport(protocol, memory, sock, number, ends[number], index == ends[number].a))
        for number, sock in below.items()
    }
    return found, endpoint


class Memory:
    """What messages lie in when they are sent."""

    def __init__(self, size: int) -> None:
        self.map = mmap.mmap(-1, size)

    def hold(self, data: bytes | bytearray | memoryview) -> memoryview:
        """`data`, in this memory."""
        size = len(data)
        if size > len(self.map):
            self.map = mmap.mmap(-1, size)
        self.map[:size] = data
        return memoryview(self.map)[:size]

    def pin(self, size: int) -> None:
        """Raises WorkloadError where the kernel does not allow it."""
        try:
            mlock(self.map, size)
        except OSError as error:
            raise WorkloadError(f"cannot pin {size} bytes: {error}; give the guest more --memory") from None

    def unpin(self, size: int) -> None:
        munlock(self.map, size)


class Transport:
    """One node's end of a connection. The methods are those of a socket that `Node` calls."""

    def __init__(
        self, protocol: Protocol, memory: Memory, sock: socket.socket, number: int, ends: Connection, is_a: bool
    ) -> None:
        """`sock`: the connection that stands. `number`: its index in the program. `is_a`: this is end `a` of `ends`."""
        self._protocol = protocol
        self._memory = memory
        self._kept = sock
        self._way = ends.a_to_b if is_a else ends.b_to_a
        self._bounce = memoryview(bytearray())
        self._listener: socket.socket | None = None
        self._incoming: socket.socket | None = None
        if protocol.reopen and not protocol.user_space:
            own, self._peer = FIRST_PORT + 2 * number + (not is_a), FIRST_PORT + 2 * number + is_a
            self._listener = self._socket()
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((sock.getsockname()[0], own))
            self._listener.listen(128)

    def sendall(self, data: bytes | bytearray | memoryview) -> None:
        protocol, size = self._protocol, len(data)
        lying = self._memory.hold(data)
        if protocol.pin == "message":
            self._memory.pin(size)
        self._handle(lying, protocol.copies[0])
        if cost := protocol.end_ns("sender", size) + protocol.header_ns(size, self._way):
            sleep_until(monotonic_ns() + cost)
        if protocol.reopen and protocol.user_space:
            cast(UserSpaceSocket, self._kept).open()
        if self._listener:
            with self._dial() as sock:
                sock.sendall(lying)
        else:
            self._kept.sendall(lying)
        if protocol.pin == "message":
            self._memory.unpin(size)

    def sendmsg(self, parts: list[bytes | bytearray | memoryview]) -> int:
        data = b"".join(parts)
        self.sendall(data)
        return len(data)

    def recv_into(self, view: memoryview, _size: int = 0, flags: int = 0) -> int:
        """Fills `view`; less comes only where the connection has ended."""
        if not self._listener:
            got = self._receive(view, flags)
        else:
            got = 0
            while got < len(view):
                if not self._incoming:
                    self._incoming, _ = self._listener.accept()
                new = self._incoming.recv_into(view[got:], 0, socket.MSG_WAITALL)
                got += new
                if got < len(view) or not new:
                    self._incoming.close()
                    self._incoming = None
        self._handle(view, self._protocol.copies[1])
        if cost := self._protocol.end_ns("receiver", got):
            sleep_until(monotonic_ns() + cost)
        return got

    def fileno(self) -> int:
        """Readable when a message comes."""
        return self._listener.fileno() if self._listener else self._kept.fileno()

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self._kept.setsockopt(level, option, value)

    def getsockopt(self, level: int, option: int, size: int = 0) -> int | bytes:
        """Of the connection that stands."""
        return self._kept.getsockopt(level, option, size)

    def close(self) -> None:
        """Close all but the connection that stood before."""
        for sock in (self._listener, self._incoming):
            if sock:
                sock.close()

    def _handle(self, data: memoryview, copies: int) -> None:
        """What a host does with the bytes of a message."""
        if copies and len(data) > len(self._bounce):
            self._bounce = memoryview(bytearray(len(data)))
        for _ in range(copies):
            self._bounce[: len(data)] = data
        if self._protocol.checksum and not self._protocol.user_space:  # there, each frame has its own
            zlib.crc32(data)

    def _receive(self, view: memoryview, flags: int) -> int:
        """From the connection that stands."""
        if self._protocol.user_space or not self._protocol.busy:
            return self._kept.recv_into(view, 0, flags)
        got = 0
        while got < len(view):
            try:
                new = self._kept.recv_into(view[got:], 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                os.sched_yield()
                continue
            if not new:
                break
            got += new
        return got

    def _socket(self) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel doubles what is set.
        for option, force in ((socket.SO_SNDBUF, SO_SNDBUFFORCE), (socket.SO_RCVBUF, SO_RCVBUFFORCE)):
            sock.setsockopt(socket.SOL_SOCKET, force, self._kept.getsockopt(socket.SOL_SOCKET, option) // 2)
        return sock

    def _dial(self) -> socket.socket:
        """A new connection, for one message. Raises WorkloadError."""
        address = self._kept.getpeername()[0], self._peer
        for _ in range(DIAL_TRIES):
            sock = self._socket()
            try:
                sock.connect(address)
            except ConnectionRefusedError:
                sock.close()
                sleep_until(monotonic_ns() + 1_000_000)
            except OSError as error:
                hint = "; measure fewer tokens" if error.errno == errno.EADDRNOTAVAIL else ""
                raise WorkloadError(f"cannot open a connection to {address[0]}: {error}{hint}") from None
            else:
                return sock
        raise WorkloadError(f"nobody listens at {address[0]}, port {address[1]}; run it again")
