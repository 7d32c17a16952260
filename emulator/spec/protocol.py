"""A protocol as a person writes it: what a message costs above the cable, cost by cost, each with its source."""

from typing import Annotated, Literal

from pydantic import Field

from emulator.spec.load import Document, Part, load
from emulator.spec.profile import Text
from emulator.spec.shipped import resolve
from emulator.spec.units import Bandwidth, Bytes, Duration

Times = Annotated[int, Field(ge=0, le=16)]


class Cost(Part):
    """A time in the host."""

    time: Duration
    source: Text
    """Where the figure comes from, or that it was not measured."""


class Copies(Part):
    """Of the whole message, at each end."""

    sender: Times
    receiver: Times
    rate: Bandwidth
    source: Text


class Path(Part):
    """The way of a message through a host. What is left out costs nothing."""

    system_call: Cost | None = None
    """Per message, at each end."""
    interrupt: Cost | None = None
    """Per message, at the receiver."""
    wake_up: Cost | None = None
    """Per message, at the receiver."""
    stack: Cost | None = None
    """Per segment, at each end: the protocol's own work."""
    acknowledgement: Cost | None = None
    """Per message, at the receiver."""
    other: Cost | None = None
    """Per message, at the sender: what a total leaves and nobody has taken apart."""
    copies: Copies | None = None


class Registration(Part):
    """Pinning the memory of a message for an adapter to read; a user-space path needs it, the kernel's does not."""

    when: Literal["message", "once"]
    """For each message, at the sender; or once, before all, for a region."""
    region: Bytes
    """What is registered once, on each node."""
    time: Duration
    time_per_page: Duration
    source: Text


class Connection(Part):
    """Message: each message opens one, which takes a round trip over the cable, and closes it. Kept: it stays open."""

    when: Literal["message", "kept"]
    time: Duration = 0
    """What the sender's host spends on opening one, besides the round trip."""
    source: Text


class Checksum(Part):
    """Over the whole message, at each end."""

    by: Literal["host", "hardware"]
    """Hardware's costs nothing."""
    rate: Bandwidth
    source: Text


class Protocol(Document):
    """Costs above a cable, charged to the time of a run."""

    name: Text
    """The file's name without `.yaml`."""
    description: Text
    path: Literal["kernel", "user-space"]
    """Which of the two a message takes, and is charged for."""
    polling: Literal["wait", "busy"] = "wait"
    """Busy: a receiver looks for messages all the time, and is never interrupted nor woken up. On the virtual clock
    that is a cost left out; on the real clock it is really done."""
    kernel: Path
    user_space: Path = Path()
    registration: Registration
    connection: Connection
    checksum: Checksum
    segment: Annotated[Bytes, Field(ge=1)]
    """Bytes of a message that one packet carries."""
    header: Annotated[Bytes, Field(ge=66)] = 66
    """Of each segment on the wire. 66 B are really sent: Ethernet 14, IPv4 20, TCP 32; what is above takes its time at
    the rate of the cable."""


def load_protocol(name: str) -> Protocol:
    """A protocol given as a file or by the name of a shipped one. Raises SpecError."""
    path = resolve("protocol", name)
    protocol = load(path, Protocol)
    if protocol.name != path.stem:
        raise protocol.error([(("name",), f"is not the file's name; write `name: {path.stem}`")])
    return protocol
