"""What a message of any size holds: its sender, receiver and number, then a stretch of random bytes that depends on
them. Nothing is kept for a message, so a pattern may send as many different sizes as it likes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from random import Random

PIECE_BYTES = 1 << 20
"""A message is made, sent and received in pieces of at most this many bytes."""

_MARK = struct.Struct("<QIHH")
"""In front of each piece: the message's number, the piece's, sender, receiver."""
_STRETCHES = 4093
"""Prime, so that messages that follow one another do not look alike."""


@cache
def _random() -> memoryview:
    return memoryview(Random(0).randbytes(PIECE_BYTES + 16 * _STRETCHES))


def pieces(
    sender: int, receiver: int, number: int, size: int, chunk: int = PIECE_BYTES
) -> Iterator[tuple[bytes, memoryview]]:
    """Mark and stretch of each piece of message `number`, of `size` bytes in pieces of `chunk`."""
    start = 16 * ((number + 31 * sender + 1009 * receiver) % _STRETCHES)
    for index in range(-(-size // chunk)):
        length = min(chunk, size - index * chunk)
        mark = _MARK.pack(number, index, sender, receiver)[:length]
        yield mark, _random()[start : start + length - len(mark)]
