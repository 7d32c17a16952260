"""A socket in the supervisor's loop that is written without waiting for its reader."""

import selectors
import socket
from collections import deque
from collections.abc import Callable

from emulator.guest.protocol import Decoder


class Wire:
    """`hear` is called when something has come. What has been sent and not taken waits; credit bounds it."""

    def __init__(self, selector: selectors.BaseSelector, connection: socket.socket, hear: Callable[[], None]) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.decoder = Decoder()
        self.selector = selector
        self.hear = hear
        self.waiting: deque[memoryview] = deque()
        self.writing = False
        selector.register(connection, selectors.EVENT_READ, self.ready)

    def ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self.flush()
        if events & selectors.EVENT_READ:
            self.hear()

    def send(self, data: bytes) -> None:
        self.waiting.append(memoryview(data))
        self.flush()

    def flush(self) -> None:
        try:
            while self.waiting:
                count = self.socket.send(self.waiting[0])
                if count == len(self.waiting[0]):
                    self.waiting.popleft()
                else:
                    self.waiting[0] = self.waiting[0][count:]
        except BlockingIOError:
            pass
        except OSError:
            self.waiting.clear()  # it is gone: reading says so, too
        if self.writing != bool(self.waiting):
            self.writing = bool(self.waiting)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.writing else 0)
            self.selector.modify(self.socket, events, self.ready)

    def read(self) -> bytes | None:
        """What has come; empty at the end, None where nothing has."""
        try:
            return self.socket.recv(1 << 20)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def close(self) -> None:
        self.selector.unregister(self.socket)
        self.socket.close()
