"""The result of a run: one JSON document, which reports read and whose schema is `msgspec.json.schema(Result)`."""

from typing import Annotated, Literal

import msgspec

from emulator.errors import WorkloadError
from emulator.fabric.inspect import Traffic
from emulator.fabric.netem import HeldShaping
from emulator.plan.model import Shaping

SCHEMA_VERSION = 2
"""Raised when a field changes its meaning, goes, or is needed where it was not."""

Text = Annotated[str, msgspec.Meta(max_length=2000, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""Without control characters: a result may be another's, and what it says is printed on a terminal."""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Nanoseconds. Percentiles are values that occurred: p99 is the smallest that 99 % do not exceed."""

    min: int
    p50: int
    p90: int
    p99: int
    max: int
    mean: float


class CableDirection(msgspec.Struct, frozen=True, kw_only=True):
    """One direction of a cable."""

    sender: Text
    receiver: Text
    requested: Shaping
    held: HeldShaping
    """As read back from the kernel."""
    traffic: Traffic
    """During the run, warm-up included."""
    utilisation: float
    """Share of that time in which the cable carried bits: 8 x bytes over rate and time."""


class CableResult(msgspec.Struct, frozen=True, kw_only=True):
    a: Text
    b: Text
    plane: Text
    profile: Text
    mtu: int
    a_to_b: CableDirection
    b_to_a: CableDirection


class Fidelity(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the figures are to be trusted."""

    ok: bool
    """False: the host was overloaded or a process starved, and `warnings` says how."""
    warnings: tuple[Text, ...] = ()


class EventResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one event of a scenario cost. Times in nanoseconds of the run's clock; tokens count as they end."""

    at_ns: int
    """After the common start."""
    what: Text
    happened: bool
    """False: the run had ended before."""
    tokens_before: int
    tokens_until_next: int
    """Those that ended after it and before the next event, or the end."""
    usual_token_time_ns: int | None
    """Median of the tokens before the first event; None: there was none."""
    token_time_ns: int | None
    """Median of `tokens_until_next`."""
    slowest_token_ns: int | None
    recovered_after_ns: int | None
    """From the event to the end of the first token, begun after it, that took at most 1.05 times the usual time; None:
    none did."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one run measured. All durations are in nanoseconds of `clock`, but for `wall_seconds`."""

    schema_version: int = SCHEMA_VERSION
    emu_version: Text
    topology: Text
    workload: Text
    pattern: Text
    parameters: dict[Text, int | Text]
    nodes: tuple[Text, ...]
    """Those that took part, in the pattern's order."""
    payload_bytes: int
    protocol: Text = ""
    """What messages cost above their cables: a file of `protocols`; empty: nothing."""
    kernel: Text
    """Where it ran: `host` or `guest`."""
    clock: Literal["virtual", "real"]
    seed: int
    """Of jitter, loss and reordering."""
    ideal: bool
    """Without jitter, loss, duplication and reordering."""
    packet_order: Text
    """What becomes of the order of packets under jitter in this kernel."""
    tokens: int
    tokens_per_second: Annotated[float, msgspec.Meta(gt=0)]
    token_time_ns: Spread
    """From the start of a token to its end on the last node that has to finish."""
    communication_time_ns: Spread
    """Token time less compute on the critical path; what a message costs its sender's host is in it."""
    exchange_delay_ns: Spread
    """From the send call of a message, host cost included, to the whole message received."""
    exchange_requested_ns: Spread
    """The same by request: host cost, delay and serialisation on an idle way."""
    compute_time_ns: int
    """Compute on the critical path of a token."""
    exchanges: int
    message_bits_per_second: float
    """Bytes of a message over its exchange delay, median; headers not counted."""
    retransmissions: int
    """TCP packets sent again."""
    cables: tuple[CableResult, ...]
    fidelity: Fidelity
    events: tuple[EventResult, ...] = ()
    """Of the scenario that ran beside it."""
    wall_seconds: float
    """What the run took in the person's time, from its start to its recording."""


def encode(result: Result) -> bytes:
    """The result as JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


class _Version(msgspec.Struct):
    schema_version: int


def decode(data: bytes) -> Result:
    """The result that `encode` wrote. Raises WorkloadError on anything else."""
    try:
        # First by itself: a document of another version may lack what this one needs.
        version = msgspec.json.decode(data, type=_Version).schema_version
        if version != SCHEMA_VERSION:
            raise WorkloadError(f"this result has schema version {version}, not {SCHEMA_VERSION}; run again")
        return msgspec.json.decode(data, type=Result)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WorkloadError(f"this is no result of emu: {error}; make one with `emu bench --json`") from None
