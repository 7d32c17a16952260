"""What a message holds: its number, then a pattern that is another one for each direction of each connection.

Large messages go in pieces, so that a transfer of any size needs little memory; each piece carries its own number.
"""

from random import Random

PIECE_BYTES = 1 << 20
NUMBER_BYTES = 8


class Payload:
    """The messages of one direction, `size` bytes each: made by the sender, and by the receiver to compare with."""

    def __init__(self, size: int, sender: int, receiver: int) -> None:
        self.pieces = -(-size // PIECE_BYTES)
        """Of each message: all of PIECE_BYTES but for the last."""
        data = Random(sender << 32 | receiver).randbytes(min(size, PIECE_BYTES))
        self._full = bytearray(data)
        self._last = bytearray(data[: size - (self.pieces - 1) * PIECE_BYTES])

    def piece(self, number: int, index: int) -> bytearray:
        """Piece `index` of message `number`; good until the next is asked for."""
        data = self._last if index == self.pieces - 1 else self._full
        mark = (number * self.pieces + index).to_bytes(NUMBER_BYTES, "little")
        data[:NUMBER_BYTES] = mark[: len(data)]
        return data
