"""Names that the kernel accepts: unique within 15 characters however long the names they are made of."""

import hashlib
from collections.abc import Iterable

INTERFACE_LENGTH = 15
"""IFNAMSIZ less the closing zero."""


def interface_name(plane: str, peer: str, taken: Iterable[str]) -> str:
    """The interface of a node that leads to `peer` on `plane`: `PLANE-PEER`, or a part of it made unique by a hash."""
    used = set(taken)
    name = f"{plane}-{peer}"
    attempt = 0
    while len(name) > INTERFACE_LENGTH or name in used:
        digest = hashlib.blake2b(f"{plane}\0{peer}\0{attempt}".encode(), digest_size=3).hexdigest()
        name = f"{peer[: INTERFACE_LENGTH - len(digest) - 1]}-{digest}"
        attempt += 1
    return name


def namespace_name(cluster: str, node: str) -> str:
    """The network namespace of a node, unique on the machine as long as cluster names are."""
    return f"emu-{cluster}-{node}"


def seed(run_seed: int, cable: str, sender: str) -> int:
    """Seed of netem's random numbers for one direction of a cable: 63 bits, another one for each direction."""
    digest = hashlib.blake2b(f"{run_seed}\0{cable}\0{sender}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
