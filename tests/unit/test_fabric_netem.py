"""netem's message as the kernel would read it, its decoder, and the tables. Real kernels: tests/guest."""

import array
import statistics
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.errors import FabricError
from emulator.fabric import distribution, netem
from emulator.fabric.netlink import attributes
from emulator.plan.model import Shaping

PLAIN = Shaping(delay_ns=40_001, rate_bps=80_000_000_000, limit_packets=1000, seed=7)
QDISC_START = 16 + 20
OPTIONS_START = 24
CORR, DELAY_DIST, REORDER, RATE, RATE64, LATENCY64, JITTER64, PRNG_SEED = 1, 2, 3, 6, 8, 10, 11, 14

shares = st.one_of(st.just(0.0), st.floats(min_value=1e-9, max_value=1))
shapings = st.builds(
    Shaping,
    delay_ns=st.integers(1, 2**63 - 1),
    rate_bps=st.integers(1, 2**60).map(lambda rate: 8 * rate),
    limit_packets=st.integers(1, 2**32 - 1),
    seed=st.integers(0, 2**63 - 1),
    jitter_ns=st.integers(0, 2**31 - 1),
    correlation=shares,
    loss=shares,
    loss_correlation=shares,
    duplicate=shares,
    reorder=shares,
)


def options(shaping: Shaping) -> bytes:
    message = netem.message(3, shaping)
    message.encode()
    found = attributes(bytes(message.data), QDISC_START)
    assert found[1] == b"netem\0"
    return found[2]


def test_message_is_for_the_root_of_the_interface() -> None:
    message = netem.message(3, PLAIN)
    message.encode()
    _length, kind, *_ = struct.unpack_from("IHHII", message.data)
    _family, index, handle, parent, _info = struct.unpack_from("B3xiIII", message.data, 16)
    assert (kind, index, handle, parent) == (36, 3, 0x10000, 0xFFFFFFFF)


def test_all_values_are_named_in_the_units_of_the_kernel() -> None:
    data = options(msgspec.structs.replace(PLAIN, loss=0.5, duplicate=1.0, jitter_ns=5, correlation=0.25, reorder=0.1))
    latency, limit, loss, gap, duplicate, jitter = struct.unpack_from("6I", data)
    assert (latency, limit, loss, gap, duplicate, jitter) == (0, 1000, 2**31, 1, 2**32 - 1, 0)
    found = attributes(data, OPTIONS_START)
    assert struct.unpack("q", found[LATENCY64]) == (40_001,)
    assert struct.unpack("q", found[JITTER64]) == (5,)
    assert struct.unpack("Q", found[RATE64]) == (10_000_000_000,)
    assert struct.unpack("IiIi", found[RATE]) == (2**32 - 1, 0, 0, 0)
    assert struct.unpack("3I", found[CORR]) == (2**30, 0, 0)
    assert struct.unpack("2I", found[REORDER]) == (429_496_730, 0)
    assert struct.unpack("Q", found[PRNG_SEED]) == (7,)
    assert DELAY_DIST not in found


def test_table_is_sent_with_jitter_alone() -> None:
    assert DELAY_DIST not in attributes(options(msgspec.structs.replace(PLAIN, distribution="normal")), OPTIONS_START)
    jittered = msgspec.structs.replace(PLAIN, distribution="normal", jitter_ns=1)
    assert attributes(options(jittered), OPTIONS_START)[DELAY_DIST] == distribution.table("normal")


@given(shapings)
def test_what_is_encoded_is_what_is_decoded(shaping: Shaping) -> None:
    held = netem.decode(options(shaping))
    assert list(netem.differences(shaping, held)) == []
    assert (held.delay_ns, held.rate_bps, held.seed) == (shaping.delay_ns, shaping.rate_bps, shaping.seed)
    for field in ("correlation", "loss", "loss_correlation", "duplicate", "reorder"):
        assert getattr(held, field) == pytest.approx(getattr(shaping, field), abs=1.2e-10)


@pytest.mark.parametrize("field", netem.HeldShaping.__struct_fields__)
def test_every_difference_is_told(field: str) -> None:
    held = netem.decode(options(PLAIN))
    other = msgspec.structs.replace(held, **{field: getattr(held, field) + 1})
    assert list(netem.differences(PLAIN, other)) == [
        f"{field} {getattr(other, field)} where {getattr(held, field)} was asked for"
    ]


def test_kernel_without_a_seed_is_no_difference() -> None:
    held = msgspec.structs.replace(netem.decode(options(PLAIN)), seed=None)
    assert list(netem.differences(PLAIN, held)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rate_bps": 0}, "multiple of 8"),
        ({"rate_bps": 12}, "multiple of 8"),
        ({"limit_packets": 0}, "limit"),
        ({"limit_packets": 2**32}, "limit"),
        ({"delay_ns": -1}, "delay"),
        ({"delay_ns": 2**63}, "delay"),
        ({"jitter_ns": 2**31}, "jitter"),
        ({"loss": 1e-10}, "2.4e-10"),
        ({"loss": 1.01}, "2.4e-10"),
        ({"duplicate": -0.1}, "2.4e-10"),
        ({"loss": float("nan")}, "2.4e-10"),
        ({"delay_ns": 0, "reorder": 0.1}, "delay"),
    ],
)
def test_what_netem_cannot_hold_is_refused(change: dict[str, float], said: str) -> None:
    with pytest.raises(FabricError, match=said):
        netem.message(3, msgspec.structs.replace(PLAIN, **change))


@pytest.mark.parametrize(
    ("name", "mean", "deviation", "median"),
    [
        ("normal", 0.0, 1.0, 0.0),
        # 4/3 (x - 3/2), x = 2^(1/3) at the median; mean and deviation with the tail cut at 4.
        ("pareto", -0.033, 0.821, 4 / 3 * (2 ** (1 / 3) - 1.5)),
        ("paretonormal", -0.0215, 0.849, (2 ** (1 / 3) - 1.5)),
    ],
)
def test_tables(name: str, mean: float, deviation: float, median: float) -> None:
    values = [value / distribution.SCALE for value in array.array("h", distribution.table(name))]
    assert len(values) == distribution.ENTRIES <= 16384
    assert values == sorted(values)
    assert max(map(abs, values)) <= 4
    assert statistics.mean(values) == pytest.approx(mean, abs=0.001)
    assert statistics.pstdev(values) == pytest.approx(deviation, abs=0.001)
    assert statistics.median(values) == pytest.approx(median, abs=0.001)
