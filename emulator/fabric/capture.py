"""Captures the frames that cross a node's cables, as pcapng on standard output. Runs inside the node, as a program.

Called with the JSON of a `Wish`. Frames are stamped by the kernel, by the clock that the cluster is on. One that it
sends is stamped when it leaves netem's queue, which is when it reaches the other end: so does every capture on Linux.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from time import monotonic
from typing import BinaryIO

import msgspec

_ETH_P_ALL = 3
_SO_TIMESTAMPNS = 35
_SO_RCVBUFFORCE = 33
_TIMESPEC = struct.Struct("qq")
_BUFFER_BYTES = 256 << 20
_LINKTYPE_ETHERNET = 1
_IF_NAME, _IF_TSRESOL, _EPB_FLAGS = 2, 9, 2
_INBOUND, _OUTBOUND = 1, 2
_WAKE_S = 0.1


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What to capture, and until when."""

    interfaces: list[str] = []
    """Empty: all but loopback."""
    count: int = 0
    """Frames; 0: any number."""
    seconds: float = 0.0
    """Of the cluster's clock; 0: for ever."""
    snaplen: int = 65535
    """Bytes of a frame that are kept."""
    command: list[str] = []
    """Run meanwhile; the capture ends with it. Its output goes to standard error."""


class Writer:
    """A pcapng file (draft-ietf-opsawg-pcapng): one section, one interface block for each cable's end."""

    def __init__(self, out: BinaryIO, snaplen: int) -> None:
        self.out, self.snaplen = out, snaplen
        self.interfaces: dict[str, int] = {}
        self._block(0x0A0D0D0A, struct.pack("=IHHq", 0x1A2B3C4D, 1, 0, -1))

    def frame(self, interface: str, stamp_ns: int, data: bytes, size: int, outbound: bool) -> None:
        """`size`: of the whole frame, of which `data` is the beginning."""
        if interface not in self.interfaces:
            self.interfaces[interface] = len(self.interfaces)
            # Time stamps in units of 10^-9 s.
            options = _option(_IF_NAME, interface.encode()) + _option(_IF_TSRESOL, b"\x09") + _option(0, b"")
            self._block(1, struct.pack("=HHI", _LINKTYPE_ETHERNET, 0, self.snaplen) + options)
        head = struct.pack("=IIIII", self.interfaces[interface], stamp_ns >> 32, stamp_ns & 0xFFFFFFFF, len(data), size)
        flags = struct.pack("=I", _OUTBOUND if outbound else _INBOUND)
        self._block(6, head + _padded(data) + _option(_EPB_FLAGS, flags) + _option(0, b""))

    def _block(self, kind: int, body: bytes) -> None:
        size = struct.pack("=I", len(body) + 12)
        self.out.write(struct.pack("=I", kind) + size + body + size)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("=HH", code, len(value)) + _padded(value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def capture(wish: Wish, out: BinaryIO) -> int:
    """Captures until what was wished for is there, or SIGINT or SIGTERM comes. Returns the command's exit status."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    writer = Writer(out, wish.snaplen)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        sock.settimeout(_WAKE_S)
        status = 0
        with _running(wish.command) as command:
            end, left = monotonic() + wish.seconds, wish.count
            while not ended.is_set():
                try:
                    data, ancillary, _, sender = sock.recvmsg(max(wish.snaplen, 65536), 64)
                except TimeoutError:
                    if command and command.poll() is not None:
                        break  # and what it sent has come
                    if wish.seconds and monotonic() >= end:
                        break
                    continue
                if sender[0] == "lo" or (wish.interfaces and sender[0] not in wish.interfaces):
                    continue
                seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
                outbound = sender[2] == socket.PACKET_OUTGOING
                stamp = seconds * 1_000_000_000 + nanoseconds
                writer.frame(sender[0], stamp, data[: wish.snaplen], len(data), outbound)
                left -= 1
                if wish.count and left <= 0:
                    break
                if wish.seconds and monotonic() >= end:
                    break
            if command:
                with contextlib.suppress(ProcessLookupError):
                    command.terminate()
                status = command.wait()
    out.flush()
    return status if status >= 0 else 128 - status


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[bytes] | None]:
    """The command, started; None where there is none."""
    if not command:
        yield None
        return
    try:
        started = subprocess.Popen(command, stdout=sys.stderr)
    except OSError as error:
        sys.stderr.write(f"error: {command[0]}: {error.strerror}\n")
        sys.exit(127)
    with started:
        yield started


if __name__ == "__main__":
    sys.exit(capture(msgspec.json.decode(sys.argv[1], type=Wish), sys.stdout.buffer))
