"""A protocol's costs as numbers: what `transport` charges for each message."""

from __future__ import annotations

import math
import mmap
from typing import TYPE_CHECKING, Literal

import msgspec

from emulator.workload.connection import HEADER_BYTES

if TYPE_CHECKING:
    from emulator.spec.protocol import Cost, Path
    from emulator.spec.protocol import Protocol as Written
    from emulator.workload.connection import Direction

End = Literal["sender", "receiver"]
SLEEPING = ("interrupt", "wake-up")
"""Costs of a receiver that sleeps."""
SYN_BYTES = 74
"""On the wire: Ethernet 14, IPv4 20, TCP with the options of a first packet 40."""


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """One named cost of a message at one of its ends."""

    name: str
    end: End
    kernel: bool = False
    """Spent inside the kernel."""
    message_ns: int = 0
    segment_ns: int = 0
    page_ns: int = 0
    bytes_per_s: int = 0
    """How fast bytes are gone through; 0: they cost nothing."""
    times: int = 1
    """How often they are."""

    def ns(self, size: int, segment_bytes: int) -> int:
        """For a message of `size` bytes."""
        byte_ns = size * self.times * 1e9 / self.bytes_per_s if self.bytes_per_s else 0.0
        segments, pages = max(1, math.ceil(size / segment_bytes)), math.ceil(size / mmap.PAGESIZE)
        return self.message_ns + segments * self.segment_ns + pages * self.page_ns + round(byte_ns)


class Protocol(msgspec.Struct, frozen=True, kw_only=True):
    """What each message does besides crossing its cables."""

    name: str
    charges: tuple[Charge, ...]
    segment_bytes: int
    header_bytes: int
    """Of each segment; what is above the `HEADER_BYTES` that are really sent is charged."""
    copies: tuple[int, int]
    """At the sender, at the receiver."""
    checksum: bool
    """Computed by both hosts."""
    pin: Literal["never", "message", "once"]
    region_bytes: int
    """What is pinned once."""
    region_ns: int
    """What pinning it costs, before the first token."""
    reopen: bool
    """Each message opens its own connection."""
    user_space: bool
    """Frames with a reliable delivery of their own, in place of the kernel's TCP."""
    busy: bool
    """Who waits for a message looks for it all the time, in place of sleeping until it comes."""

    def on(self, clock: Literal["virtual", "real"]) -> Protocol:
        """What is done and charged on a clock: on the real one, what is done takes its time by itself.

        On the virtual one nobody polls: time stands still for who never sleeps, and who sleeps wakes up at once.
        """
        if clock == "virtual":
            return msgspec.structs.replace(self, busy=False)
        return msgspec.structs.replace(self, charges=(), region_ns=0)

    def parts(self, size: int) -> dict[str, int]:
        """Nanoseconds by the name of the cost, both ends together."""
        found: dict[str, int] = {}
        for charge in self.charges:
            found[charge.name] = found.get(charge.name, 0) + charge.ns(size, self.segment_bytes)
        return found

    def kernel_ns(self, size: int) -> int:
        """What of a message's time the kernels of both ends spend."""
        return sum(charge.ns(size, self.segment_bytes) for charge in self.charges if charge.kernel)

    def end_ns(self, end: End, size: int) -> int:
        return sum(charge.ns(size, self.segment_bytes) for charge in self.charges if charge.end == end)

    def header_ns(self, size: int, way: Direction) -> int:
        """Serialisation of header bytes that are not really sent."""
        segments = max(1, math.ceil(size / self.segment_bytes))
        return round(segments * (self.header_bytes - HEADER_BYTES) * 8e9 / way.rate_bps)

    def expected_ns(self, size: int, way: Direction, back: Direction) -> int:
        """What a message takes by request besides the time on its way, `way`."""
        opening = 0
        if self.reopen:
            opening = sum(d.delay_ns + round(sum(SYN_BYTES * 8e9 / rate for rate in d.rates_bps)) for d in (way, back))
        return opening + self.header_ns(size, way) + self.end_ns("sender", size) + self.end_ns("receiver", size)


def protocol(written: Written) -> Protocol:
    """The numbers of a protocol file."""
    kernel = written.path == "kernel"
    path = written.kernel if kernel else written.user_space
    registration, connection, checksum = written.registration, written.connection, written.checksum
    pin: Literal["never", "message", "once"] = "never" if kernel else registration.when
    busy = written.polling == "busy"
    charges = [one for one in _path_charges(path, kernel) if not (busy and one.name in SLEEPING)]
    if pin == "message":
        page = registration.time_per_page
        charges.append(Charge(name="registration", end="sender", message_ns=registration.time, page_ns=page))
    if connection.when == "message" and connection.time:
        charges.append(Charge(name="connection", end="sender", kernel=kernel, message_ns=connection.time))
    if checksum.by == "host":
        charges += [
            Charge(name="checksum", end="sender", kernel=kernel, bytes_per_s=checksum.rate),
            Charge(name="checksum", end="receiver", kernel=kernel, bytes_per_s=checksum.rate),
        ]
    pages = math.ceil(registration.region / mmap.PAGESIZE)
    return Protocol(
        name=written.name,
        charges=tuple(charges),
        segment_bytes=written.segment,
        header_bytes=written.header,
        copies=(path.copies.sender, path.copies.receiver) if path.copies else (0, 0),
        checksum=checksum.by == "host",
        pin=pin,
        region_bytes=registration.region if pin == "once" else 0,
        region_ns=registration.time + pages * registration.time_per_page if pin == "once" else 0,
        reopen=connection.when == "message",
        user_space=not kernel,
        busy=busy,
    )


def _path_charges(path: Path, kernel: bool) -> list[Charge]:
    both: tuple[End, ...] = ("sender", "receiver")
    per_message: tuple[tuple[str, Cost | None, tuple[End, ...]], ...] = (
        ("system call", path.system_call, both),
        ("interrupt", path.interrupt, ("receiver",)),
        ("wake-up", path.wake_up, ("receiver",)),
        ("acknowledgement", path.acknowledgement, ("receiver",)),
        ("other", path.other, ("sender",)),
    )
    found = [
        Charge(name=name, end=end, kernel=kernel, message_ns=cost.time)
        for name, cost, ends in per_message
        for end in ends
        if cost
    ]
    for end in both:
        if path.stack:
            found.append(Charge(name="stack", end=end, kernel=kernel, segment_ns=path.stack.time))
        if path.copies:
            times = path.copies.sender if end == "sender" else path.copies.receiver
            found.append(Charge(name="copies", end=end, kernel=kernel, bytes_per_s=path.copies.rate, times=times))
    return found
