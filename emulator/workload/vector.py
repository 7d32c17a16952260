"""Vectors of 16-bit numbers that are added for real. One is held as one Python integer, an element every 16 bits:
a sum of such integers adds all elements, exactly and without carries, as long as no element exceeds 65535."""

from random import Random

ELEMENT_BYTES = 2
MAX_NODES = 256
"""Elements are below 256, so that the sum of this many stays below 65536."""
MAX_BYTES = 16 << 20
"""Of a vector: nodes send before they receive, so it has to fit into socket buffers."""

_TURNS = 8
"""After so many all-reduces, each node brings the same vectors again."""


def check_size(size: int, nodes: int, pieces: int = 1) -> None:
    """Raises ValueError where vectors of `size` bytes cannot be reduced over so many nodes in so many pieces."""
    if nodes > MAX_NODES:
        raise ValueError(f"sums are exact up to {MAX_NODES} nodes, and there are {nodes}; name fewer with `nodes`")
    if not ELEMENT_BYTES * pieces <= size <= MAX_BYTES or size % ELEMENT_BYTES:
        raise ValueError(
            f"a vector of {size} bytes cannot be reduced; write an even payload of {ELEMENT_BYTES * pieces}B to 16MiB"
        )


class Vectors:
    """What one node brings to each all-reduce, and what all nodes' vectors come to. Another one in each turn."""

    def __init__(self, size: int, nodes: int, index: int) -> None:
        elements = size // ELEMENT_BYTES
        ones = int.from_bytes(b"\1\0" * elements, "little")
        # Values below 248, and below 256 in every turn.
        values = bytes.maketrans(bytes(range(256)), bytes(value * 247 // 255 for value in range(256)))
        all_nodes = [_spread(Random(node).randbytes(elements).translate(values)) for node in range(nodes)]
        total = sum(all_nodes)
        self._own = [all_nodes[index] + turn * ones for turn in range(_TURNS)]
        self._totals = [total + turn * nodes * ones for turn in range(_TURNS)]

    def own(self, turn: int) -> int:
        """The vector of this node in all-reduce number `turn`."""
        return self._own[turn % _TURNS]

    def check(self, total: int, turn: int) -> None:
        """Raises ValueError unless `total` is the sum of all nodes' vectors in all-reduce number `turn`."""
        if total != self._totals[turn % _TURNS]:
            raise ValueError(f"all-reduce number {turn} came to a wrong sum: a message was changed or lost on the way")


def _spread(values: bytes) -> int:
    """One element for each byte."""
    data = bytearray(2 * len(values))
    data[::2] = values
    return int.from_bytes(data, "little")


def to_bytes(vector: int, size: int) -> bytes:
    return vector.to_bytes(size, "little")


def from_bytes(data: bytes | memoryview) -> int:
    return int.from_bytes(data, "little")


def split(vector: int, size: int, count: int) -> tuple[list[int], list[int]]:
    """`count` pieces of whole elements, as even as can be, and the bytes of each."""
    elements = size // ELEMENT_BYTES
    sizes = [(elements * (i + 1) // count - elements * i // count) * ELEMENT_BYTES for i in range(count)]
    pieces = []
    for piece_size in sizes:
        pieces.append(vector & ((1 << 8 * piece_size) - 1))
        vector >>= 8 * piece_size
    return pieces, sizes


def join(pieces: list[int], sizes: list[int]) -> int:
    """What `split` took apart."""
    vector = shift = 0
    for piece, size in zip(pieces, sizes, strict=True):
        vector |= piece << shift
        shift += 8 * size
    return vector
