"""A node's process: what a pattern can do (compute, send, receive), and the stamps it leaves.

Few system calls, because they are what a run in the guest spends its wall time on: a message costs one to send, one to
receive and one to read the clock. All stamps are CLOCK_MONOTONIC, one clock for all nodes, in nanoseconds.
"""

from __future__ import annotations

import select
import socket
import struct
from array import array
from collections.abc import Callable, Iterator
from functools import cached_property
from time import monotonic_ns
from typing import TYPE_CHECKING

from emulator.errors import WorkloadError
from emulator.linux import sleep_until
from emulator.workload.connection import PACKET_OVERHEAD_BYTES
from emulator.workload.content import PIECE_BYTES, pieces
from emulator.workload.patterns import load_pattern
from emulator.workload.payload import Payload
from emulator.workload.recording import LinkRecord, NodeRecord
from emulator.workload.vector import Vectors

if TYPE_CHECKING:
    from emulator.workload.connection import Connection
    from emulator.workload.program import Program
    from emulator.workload.userspace import Poll

ACKNOWLEDGE_EVERY = 8
"""Small messages in a row without an answer. The kernel acknowledges those late, after 40 ms or a full packet; below
the 10 packets that a new connection may have under way, no sender has to wait for that."""
WHOLE_BYTES = 64 << 10
"""Up to here, several messages that are waited for are stamped in the order in which they become whole."""
INITIAL_WINDOW_PACKETS = 10
"""What Linux lets a new connection have under way (RFC 6928)."""
_TCP_INFO_TOTAL_RETRANS = struct.Struct("=100xI")
"""Where struct tcp_info of linux/tcp.h has tcpi_total_retrans."""


class Link:
    """This node's end of a connection."""

    def __init__(self, index: int, connection: int, ends: Connection, sock: socket.socket, size: int) -> None:
        self.connection = connection
        self.ends = ends
        self.peer = ends.b if index == ends.a else ends.a
        self.sock = sock
        self.cost_ns = ends.sent_by(index).cost_ns
        self.segment_bytes = ends.sent_by(index).mtu - PACKET_OVERHEAD_BYTES
        self.out = Payload(size, sender=index, receiver=self.peer)
        self.expected = Payload(size, sender=self.peer, receiver=index)
        self.buffer = memoryview(bytearray(len(self.expected.piece(0, 0))))
        self.last = self.buffer[: len(self.expected.piece(0, self.expected.pieces - 1))]
        """Where the last piece of a message comes to lie."""
        self.sent = array("q")
        self.sizes = array("q")
        self.received = array("q")
        self.unchecked = False
        """`last` has not been compared yet."""
        self.acknowledged_late = size * ACKNOWLEDGE_EVERY < self.segment_bytes
        self.unanswered = 0
        self.whole = 1

    def report_at(self, size: int) -> None:
        """Have `poll` report this connection once `size` bytes have come: not before the message is whole.

        Only for messages that are polled for: a receive call that has taken half would never hear of the rest.
        """
        size = size if size <= WHOLE_BYTES else 1
        if size != self.whole:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
            self.whole = size


class Node:
    """What the pattern of the program sees of the node it runs on. Raises WorkloadError where a message is wrong."""

    def __init__(
        self,
        program: Program,
        index: int,
        sockets: dict[int, socket.socket],
        signs: memoryview,
        poller: Callable[[], select.poll | Poll] = select.poll,
    ) -> None:
        """`sockets`: this node's, by index of the connection. `signs`: shared with the coordinator (see `run`).
        `poller`: makes what waits for several of them."""
        self.program = program
        self.team = program.team
        self.index = index
        self.count = len(program.team.nodes)
        self.payload_bytes = program.team.payload_bytes
        self.compute_ns = program.compute_ns[index]
        """What this node computes for each token."""
        self.now = 0
        """When the last message was whole."""
        self._signs = signs
        self._poller = poller
        self._links = [
            Link(index, number, program.connections[number], sock, self.payload_bytes)
            for number, sock in sorted(sockets.items())
        ]
        self._by_peer = {(link.peer, link.ends.plane): link for link in self._links}
        self._buffer = memoryview(bytearray())
        self._vectors: dict[int, Vectors] = {}
        self._ends = array("q")
        self._computed = array("q")
        self._warm_up_ns = 0

    # What patterns use.

    clock = staticmethod(monotonic_ns)

    def link(self, peer: int, plane: str = "") -> Link:
        """The connection to another node, one of those that the pattern asked for."""
        return self._by_peer[peer, plane]

    @cached_property
    def next(self) -> Link:
        """To the node after this one; the first follows the last."""
        return self.link((self.index + 1) % self.count)

    @cached_property
    def previous(self) -> Link:
        return self.link((self.index - 1) % self.count)

    @cached_property
    def vectors(self) -> Vectors:
        """What each node brings to an all-reduce of the workload's payload."""
        return self.vectors_of(self.payload_bytes)

    def vectors_of(self, size: int) -> Vectors:
        """What each node brings to an all-reduce of `size` bytes."""
        if size not in self._vectors:
            self._vectors[size] = Vectors(size, self.count, self.index)
        return self._vectors[size]

    def compute(self, now: int, parts: int = 1) -> int:
        """Computes for one of `parts` of a token's compute time, from `now` on; returns the time after it."""
        if not self.compute_ns:
            return now
        sleep_until(now + self.compute_ns // parts)
        end = monotonic_ns()
        self._computed.extend((now, end))
        return end

    def compute_beside(self, start: int, duration: int) -> int:
        """Computes for `duration` from `start` on while messages go on; returns when that ends. Nothing is slept: who
        needs what was computed waits with `wait_until`."""
        if duration:
            self._computed.extend((start, start + duration))
        return start + duration

    def wait_until(self, time: int) -> int:
        """Sleeps until `time`; returns the time after it, at once where it has passed."""
        sleep_until(time)
        return monotonic_ns()

    def send(self, link: Link, now: int) -> None:
        """Sends the next message of the workload's payload. `now` is the time of the send call, which begins with what
        the message costs the host."""
        number = len(link.sent)
        self._begin(link, now)
        for index in range(link.out.pieces):
            link.sock.sendall(link.out.piece(number, index))

    def receive(self, link: Link) -> int:
        """Waits for the next message of the workload's payload; returns the time at which it was whole.

        Its content is compared before the next one is received, when the node has sent what others wait for.
        """
        if link.unchecked:
            self._compare(link, link.expected.pieces - 1, link.last)
        if link.whole != 1:
            link.report_at(1)
        if link.expected.pieces > 1:
            self._receive_pieces(link)
        self._read(link, link.last)
        self.now = now = monotonic_ns()
        link.received.append(now)
        link.unchecked = True
        return now

    def send_data(self, link: Link, data: bytes, now: int) -> None:
        """Sends `data` as one message."""
        self._begin(link, now)
        link.sizes.append(len(data))
        link.sock.sendall(data)

    def receive_data(self, links: list[Link], size: int) -> Iterator[memoryview]:
        """Waits for a message of `size` bytes over each of `links`, and yields each when it is whole, in the order in
        which they come; `self.now` is then when it was. The bytes are good until the next one is asked for."""
        return (data for _, data in self.receive_each([(link, size) for link in links]))

    def receive_each(self, wanted: list[tuple[Link, int]]) -> Iterator[tuple[Link, memoryview]]:
        """As `receive_data`, with a size for each link; yields each message with its link."""
        largest = max(size for _, size in wanted)
        if len(self._buffer) < largest:
            self._buffer = memoryview(bytearray(largest))
        for link, size in self._arrivals(wanted):
            yield link, self._read_data(link, self._buffer[:size])

    def send_sized(self, messages: list[tuple[Link, int]], now: int, chunk: int = PIECE_BYTES) -> None:
        """Sends a message of that many bytes over each link, the first `chunk` of each before the second of any. A
        chunk is what one send call takes."""
        parts = []
        for link, size in messages:
            parts.append((link.sock, pieces(self.index, link.peer, len(link.sent), size, chunk)))
            self._begin(link, now)
            now += link.cost_ns
            link.sizes.append(size)
        while parts:
            rest = []
            for sock, left in parts:
                if part := next(left, None):
                    sock.sendmsg(part)
                    rest.append((sock, left))
            parts = rest

    def receive_sized(self, messages: list[tuple[Link, int]], chunk: int = PIECE_BYTES) -> int:
        """Waits for a message of `send_sized` of that many bytes over each link, and compares what it holds. Returns
        the time at which the last one was whole. `chunk`: as it was sent."""
        most = PIECE_BYTES // chunk * chunk
        largest = max(min(size, most) for _, size in messages)
        if len(self._buffer) < largest:
            self._buffer = memoryview(bytearray(largest))
        for link, size in self._arrivals(messages):
            number = len(link.received)
            expected = pieces(link.peer, self.index, number, size, chunk)
            for start in range(0, size, most):
                view = self._buffer[: min(most, size - start)]
                self._read(link, view)
                if start + len(view) == size:
                    self.now = monotonic_ns()
                    link.received.append(self.now)
                for at in range(0, len(view), chunk):
                    mark, data = next(expected)
                    end = at + len(mark)
                    if view[at:end] != mark or view[end : end + len(data)] != data:
                        peer = self.team.nodes[link.peer]
                        raise WorkloadError(
                            f"message {number} from {peer} came with a content that {peer} did not send"
                        )
        return self.now

    # What `run` uses.

    def warm_up(self) -> None:
        """Opens the congestion windows as far as messages need, and runs the warm-up tokens."""
        began = monotonic_ns()
        for link in self._links:
            self._open_window(link)
        self._tokens(self.program.warmup_tokens, monotonic_ns())
        self._warm_up_ns = monotonic_ns() - began
        self._ends, self._computed = array("q"), array("q")
        for link in self._links:
            link.sent, link.sizes, link.received = array("q"), array("q"), array("q")

    def run(self, start_ns: int) -> None:
        """Runs the tokens of the program, from `start_ns` on."""
        sleep_until(start_ns)
        self._tokens(self.program.tokens, monotonic_ns())

    def record(self) -> NodeRecord:
        """The stamps of `run`."""
        return NodeRecord(
            ends_ns=self._ends.tobytes(),
            links=tuple(
                LinkRecord(
                    connection=link.connection,
                    sent_ns=link.sent.tobytes(),
                    sizes=link.sizes.tobytes(),
                    received_ns=link.received.tobytes(),
                    retransmissions=_retransmissions(link.sock),
                )
                for link in self._links
            ),
            computed_ns=self._computed.tobytes(),
            warm_up_ns=self._warm_up_ns,
        )

    def _tokens(self, count: int, now: int) -> None:
        pattern = load_pattern(self.program.pattern, self.program.parameters)
        for number in range(count):
            try:
                end = pattern.token(self, number, now)
            except ValueError as error:
                raise WorkloadError(f"token {number}: {error}") from None
            self._ends.append(end)
            now = end or now
        for link in self._links:
            if link.unchecked:
                self._compare(link, link.expected.pieces - 1, link.last)

    def _open_window(self, link: Link) -> None:
        # A congestion window doubles with each round trip that it bounds: by then, twice what is needed has gone.
        # Where all nodes send at once, queues make the way longer: what is sent ahead should not wait for the window.
        need = max(min(self.payload_bytes, link.ends.in_flight_bytes), self.program.ahead_bytes)
        if need < (INITIAL_WINDOW_PACKETS - 2) * link.segment_bytes:
            return
        zeros, count = memoryview(bytearray(64 << 10)), 4 * need // (64 << 10) + 1
        for sends in (self.index == link.ends.a, self.index == link.ends.b):
            for _ in range(count):
                if sends:
                    link.sock.sendall(zeros)
                else:
                    self._read(link, zeros)

    def _begin(self, link: Link, now: int) -> None:
        link.sent.append(now)
        link.unanswered = 0
        if link.cost_ns:
            sleep_until(now + link.cost_ns)

    def _read(self, link: Link, view: memoryview) -> None:
        if link.acknowledged_late:
            link.unanswered += 1
            if link.unanswered > ACKNOWLEDGE_EVERY:
                link.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                link.unanswered = 1
        signs, place = self._signs, 2 * self.index
        signs[place + 1] = link.peer + 1
        if link.sock.recv_into(view, 0, socket.MSG_WAITALL) != len(view):
            raise WorkloadError(f"the connection to {self.team.nodes[link.peer]} ended")
        signs[place] += 1
        signs[place + 1] = 0

    def _read_data(self, link: Link, view: memoryview) -> memoryview:
        self._read(link, view)
        self.now = now = monotonic_ns()
        link.received.append(now)
        return view

    def _arrivals(self, wanted: list[tuple[Link, int]]) -> Iterator[tuple[Link, int]]:
        """Each link and size of `wanted` when its message begins to come; up to WHOLE_BYTES: when all of it has."""
        if len(wanted) == 1:
            wanted[0][0].report_at(1)
            yield wanted[0]
            return
        waiting = {link.sock.fileno(): (link, size) for link, size in wanted}
        poll = self._poller()
        for descriptor, (link, size) in waiting.items():
            link.report_at(size)
            poll.register(descriptor, select.POLLIN)
        while waiting:
            self._signs[2 * self.index + 1] = next(iter(waiting.values()))[0].peer + 1
            for descriptor, _ in poll.poll():
                poll.unregister(descriptor)
                yield waiting.pop(descriptor)

    def _receive_pieces(self, link: Link) -> None:
        """All pieces of a message but the last."""
        for index in range(link.expected.pieces - 1):
            self._read(link, link.buffer)
            self._compare(link, index, link.buffer, number=len(link.received))

    def _compare(self, link: Link, index: int, view: memoryview, number: int = -1) -> None:
        if number < 0:
            link.unchecked = False
            number = len(link.received) - 1
        if link.expected.piece(number, index) != view:
            peer = self.team.nodes[link.peer]
            raise WorkloadError(f"message {number} from {peer} came with a content that {peer} did not send")


def _retransmissions(sock: socket.socket) -> int:
    """Packets that a connection has sent again, since it was made."""
    (count,) = _TCP_INFO_TOTAL_RETRANS.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104))
    return int(count)
