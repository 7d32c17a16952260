"""netem's message: a Shaping as the kernel takes it, and what the kernel holds, read back.

Semantics are those of net/sched/sch_netem.c, Linux 6.12:
- delay and jitter are s64 nanoseconds; jitter is capped at 2^31 - 1 ns. Without a table the delay is uniform over
  delay +- jitter; with one, jitter is what an entry of 1 means. A delay drawn below 0 is 0.
- rate is u64 bytes/s of Ethernet frames (14 bytes of header included); a packet's time is rounded down to whole ns (in
  our guest kernel what is cut off goes to the next packet, so that a full cable has its rate exactly).
- Because there always is a rate, a packet never leaves before one that is still queued in front of it, jitter or not:
  reordering comes from `reorder` alone. (Our guest kernel also keeps it behind one that has left.)
- probabilities and correlations are u32, p x (2^32 - 1): a step of 2.3e-10.
- limit counts packets, and at most u32 of them.
- The distribution's table cannot be read back.
"""

import functools
import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from emulator.errors import FabricError
from emulator.fabric import distribution
from emulator.fabric.messages import nla, nlmsg
from emulator.plan.model import Shaping

RTM_NEWQDISC = 36
TC_H_ROOT = 0xFFFFFFFF
HANDLE = 0x10000
"""`1:` as tc writes it."""

_U32 = 2**32 - 1


class netem_options(nla):  # type: ignore[misc]
    """TCA_OPTIONS of netem with the 64-bit attributes, which pyroute2 0.9 lacks (linux/pkt_sched.h)."""

    fields = tuple((name, "I") for name in ("latency", "limit", "loss", "gap", "duplicate", "jitter"))
    prefix = "TCA_NETEM_"
    nla_map = (
        ("TCA_NETEM_UNSPEC", "none"),
        ("TCA_NETEM_CORR", "netem_corr"),
        ("TCA_NETEM_DELAY_DIST", "cdata"),
        ("TCA_NETEM_REORDER", "netem_reorder"),
        ("TCA_NETEM_CORRUPT", "hex"),
        ("TCA_NETEM_LOSS", "hex"),
        ("TCA_NETEM_RATE", "netem_rate"),
        ("TCA_NETEM_ECN", "uint32"),
        ("TCA_NETEM_RATE64", "uint64"),
        ("TCA_NETEM_PAD", "hex"),
        ("TCA_NETEM_LATENCY64", "int64"),
        ("TCA_NETEM_JITTER64", "int64"),
        ("TCA_NETEM_SLOT", "hex"),
        ("TCA_NETEM_SLOT_DIST", "hex"),
        ("TCA_NETEM_PRNG_SEED", "uint64"),
    )

    class netem_corr(nla):  # type: ignore[misc]
        fields = (("delay", "I"), ("loss", "I"), ("duplicate", "I"))

    class netem_reorder(nla):  # type: ignore[misc]
        fields = (("probability", "I"), ("correlation", "I"))

    class netem_rate(nla):  # type: ignore[misc]
        fields = (("rate", "I"), ("packet_overhead", "i"), ("cell_size", "I"), ("cell_overhead", "i"))


class qdisc_message(nlmsg):  # type: ignore[misc]
    """tcmsg of linux/rtnetlink.h, for netem alone: pyroute2's own loads every scheduler and classifier (25 ms)."""

    prefix = "TCA_"
    fields = (("family", "B"), ("pad", "3x"), ("index", "i"), ("handle", "I"), ("parent", "I"), ("info", "I"))
    nla_map = (("TCA_UNSPEC", "none"), ("TCA_KIND", "asciiz"), ("TCA_OPTIONS", "netem_options"))
    netem_options = netem_options


def message(index: int, shaping: Shaping) -> qdisc_message:
    """The request that makes netem, so shaped, the root qdisc of interface `index`.

    Every value is named: one that is left out keeps what it was when netem is changed in place.
    Raises FabricError where netem has no such value.
    """
    made = qdisc_message()
    made["header"]["type"] = RTM_NEWQDISC
    made["index"] = index
    made["handle"] = HANDLE
    made["parent"] = TC_H_ROOT
    made["attrs"] = [("TCA_KIND", "netem"), ("TCA_OPTIONS", _options(shaping))]
    return made


def _options(shaping: Shaping) -> dict[str, Any]:
    held = _to_hold(shaping)
    rate = held.rate_bps // 8
    probability = _u32
    attributes: list[tuple[str, Any]] = [
        (
            "TCA_NETEM_CORR",
            {"delay": probability(held.correlation), "loss": probability(held.loss_correlation), "duplicate": 0},
        ),
        ("TCA_NETEM_REORDER", {"probability": probability(held.reorder), "correlation": 0}),
        ("TCA_NETEM_RATE", {"rate": min(rate, _U32), "packet_overhead": 0, "cell_size": 0, "cell_overhead": 0}),
        ("TCA_NETEM_RATE64", rate),
        ("TCA_NETEM_LATENCY64", held.delay_ns),
        ("TCA_NETEM_JITTER64", held.jitter_ns),
        ("TCA_NETEM_PRNG_SEED", shaping.seed),
    ]
    if shaping.jitter_ns and shaping.distribution != "uniform":
        attributes.append(("TCA_NETEM_DELAY_DIST", distribution.table(shaping.distribution)))
    return {
        # Ticks of 64 ns, overruled by LATENCY64 and JITTER64.
        "latency": 0,
        "jitter": 0,
        "limit": held.limit_packets,
        "loss": probability(held.loss),
        "duplicate": probability(held.duplicate),
        # With gap 1 every packet is sent at once with the probability of reordering; with 0 none is.
        "gap": 1 if held.reorder else 0,
        "attrs": attributes,
    }


class HeldShaping(msgspec.Struct, frozen=True, kw_only=True):
    """What netem says it holds, in the units of Shaping."""

    delay_ns: int
    jitter_ns: int
    rate_bps: int
    limit_packets: int
    seed: int | None
    """None: a kernel before 6.6, whose netem takes no seed; jitter and loss do not repeat there."""
    correlation: float
    loss: float
    loss_correlation: float
    duplicate: float
    reorder: float


def decode(options: bytes) -> HeldShaping:
    """What a TCA_OPTIONS attribute of netem, without its header, says."""
    # nla.decode wants the attribute's header in front.
    decoded = netem_options(struct.pack("HH", len(options) + 4, 2) + options)
    decoded.decode()
    get = decoded.get_attr
    correlation = get("TCA_NETEM_CORR")
    narrow_rate = get("TCA_NETEM_RATE")["rate"]
    rate = get("TCA_NETEM_RATE64") if narrow_rate == _U32 else None
    return HeldShaping(
        delay_ns=get("TCA_NETEM_LATENCY64"),
        jitter_ns=get("TCA_NETEM_JITTER64"),
        rate_bps=8 * (narrow_rate if rate is None else rate),
        limit_packets=decoded["limit"],
        seed=get("TCA_NETEM_PRNG_SEED"),
        correlation=correlation["delay"] / _U32,
        loss=decoded["loss"] / _U32,
        loss_correlation=correlation["loss"] / _U32,
        duplicate=decoded["duplicate"] / _U32,
        reorder=get("TCA_NETEM_REORDER")["probability"] / _U32 if decoded["gap"] else 0.0,
    )


def differences(asked: Shaping, held: HeldShaping) -> Iterator[str]:
    """Each value that the kernel holds otherwise than asked. Probabilities may differ by what u32 makes unavoidable."""
    wanted = _to_hold(asked)
    for field in HeldShaping.__struct_fields__:
        want, have = getattr(wanted, field), getattr(held, field)
        if want != have and not (field == "seed" and have is None):
            yield f"{field} {have} where {want} was asked for"


@functools.cache
def _to_hold(shaping: Shaping) -> HeldShaping:
    """What netem has to hold for this shaping to be true. Raises FabricError where it cannot."""
    if shaping.rate_bps <= 0 or shaping.rate_bps % 8:
        raise FabricError(f"netem's rate is whole bytes per second, not {shaping.rate_bps} bit/s; use a multiple of 8")
    if shaping.reorder and not shaping.delay_ns:
        raise FabricError("reordering needs a delay to overtake in; give the cable one or leave reordering out")
    if not 0 < shaping.limit_packets <= _U32:
        raise FabricError(f"netem's limit is 1 to {_U32} packets, not {shaping.limit_packets}")
    if not (0 <= shaping.delay_ns < 2**63 and 0 <= shaping.jitter_ns < 2**31):
        raise FabricError(
            f"netem takes a delay of 0 to 292 years and a jitter of 0 to 2.147483647 s, "
            f"not {shaping.delay_ns} ns and {shaping.jitter_ns} ns"
        )
    shares = {
        field: _u32(getattr(shaping, field)) / _U32
        for field in ("correlation", "loss", "loss_correlation", "duplicate", "reorder")
    }
    return HeldShaping(
        delay_ns=shaping.delay_ns,
        jitter_ns=shaping.jitter_ns,
        rate_bps=shaping.rate_bps,
        limit_packets=shaping.limit_packets,
        seed=shaping.seed,
        **shares,
    )


def _u32(share: float) -> int:
    """A share of 1 as netem counts it. Raises FabricError for what is none, or so small that netem would never act."""
    scaled = round(share * _U32) if 0 <= share <= 1 else -1
    if scaled < 0 or (share and not scaled):
        raise FabricError(f"netem takes shares of 2.4e-10 to 1, or 0, not {share}")
    return scaled
