"""Quantities: what is held is what was written, exactly; what cannot be held is refused with what to write."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.spec.units import BANDWIDTH, BYTES, DURATION, MTU, PRECISION, RATE, Percentage, Quantity, Span

QUANTITIES = [DURATION, RATE, BANDWIDTH, BYTES, MTU, PRECISION]


@pytest.mark.parametrize(
    ("quantity", "text", "value"),
    [
        (DURATION, "300us", 300_000),
        (DURATION, "0.9ms", 900_000),
        (DURATION, "0.5s", 500_000_000),
        (DURATION, "0.001us", 1),
        (DURATION, "0ns", 0),
        (DURATION, "100s", 100_000_000_000),
        (RATE, "80Gbit/s", 80_000_000_000),
        (RATE, "320Gbit/s", 320_000_000_000),
        (RATE, "800Gbit/s", 800_000_000_000),
        (RATE, "40GB/s", 320_000_000_000),
        (RATE, "4.75GiB/s", 40_802_189_312),
        (BANDWIDTH, "819GB/s", 819_000_000_000),
        (BYTES, "512GiB", 512 * 2**30),
        (BYTES, "256GB", 256 * 10**9),
        (BYTES, "14336B", 14336),
        (MTU, "9000B", 9000),
        (PRECISION, "16bit", 16),
    ],
)
def test_value_is_exact(quantity: Quantity, text: str, value: int) -> None:
    assert quantity.parse(text) == value


@pytest.mark.parametrize(
    ("quantity", "text", "message"),
    [
        (DURATION, 50, "50 has no unit; write 50us or 50ms or 50s"),
        (DURATION, 0.9, "0.9 has no unit; write 0.9us"),
        (DURATION, "50", "50 has no unit; write 50us"),
        (DURATION, "40 us", "write 40us"),
        (DURATION, "40usec", "unknown unit 'usec'; write 40us"),
        (DURATION, "1µs", "write 1us"),
        (DURATION, "1e3us", "write the number out"),
        (DURATION, "-3us", "is negative; write 0ns to 100s"),
        (DURATION, "101s", "out of bounds; write 0ns to 100s"),
        (DURATION, "0.1ns", "not a whole number of ns; write 1ns"),
        (DURATION, True, "true is not a duration"),
        (DURATION, None, "has no value"),
        (DURATION, [1], "a list is not a duration"),
        (DURATION, "٣us", "is not a duration"),
        (RATE, 80, "80 has no unit; write 80Gbit/s or 80GB/s"),
        (RATE, "80gbit/s", "write 80Gbit/s"),
        (RATE, "80Gbps", "write 80Gbit/s"),
        (RATE, "0Gbit/s", "write 1kbit/s to 100Tbit/s"),
        (RATE, "1000Tbit/s", "write 1kbit/s to 100Tbit/s"),
        (RATE, "1001bit/s", "multiple of 8 bit/s"),
        (BYTES, "512", "512 has no unit"),
        (BYTES, "5gib", "write 5GiB"),
        (BYTES, "1.5B", "not a whole number of B"),
        (MTU, 9000, "9000 has no unit; write 9000B"),
        (MTU, "100kB", "write 576B to 65535B"),
        (Percentage, 0.1, "write 0.1% (or 10%, if a share of 1 is meant)"),
        (Percentage, 5, "5 has no unit; write 5%"),
        (Percentage, "101%", "write 0% to 100%"),
        (Percentage, "-1%", "write 0% to 100%"),
        (Span, "50us..30us", "write the smaller value first"),
        (Span, "30..50us", "30 has no unit"),
        (Span, "1ns..2ns", "not a whole number of ns"),
    ],
)
def test_refusal_says_what_to_write(quantity: Quantity | type[Span], text: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        quantity.parse(text)


def test_range_is_middle_and_half_width() -> None:
    assert Span.parse("30us..50us") == Span(40_000, 10_000)
    assert Span.parse("1us..2us") == Span(1_500, 500)
    assert Span.parse("40us") == Span(40_000, 0)
    assert Span(40_000, 10_000).format() == "30us..50us"


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        (RATE, "32Gbit/s"),
        (RATE, "52.6Gbit/s"),
        (DURATION, "287.5us"),
        (DURATION, "0ns"),
        (BYTES, "512GiB"),
        (BYTES, "1TB"),
    ],
)
def test_value_is_shown_as_it_was_written(quantity: Quantity, text: str) -> None:
    assert quantity.format(quantity.parse(text)) == text


def _value_or_message(quantity: Quantity | type[Span] | type[Percentage], text: object) -> object:
    try:
        return quantity.parse(text)
    except ValueError as error:
        return str(error)


@given(st.sampled_from(QUANTITIES), st.integers(min_value=0, max_value=10**15))
def test_shown_value_reads_as_the_same(quantity: Quantity, number: int) -> None:
    value = number * quantity.multiple
    text = quantity.format(value)
    assert re.fullmatch(quantity.pattern[1:-1], text)
    assert _value_or_message(quantity, text) == value or "out of bounds" in str(_value_or_message(quantity, text))


@given(st.integers(min_value=0, max_value=100_000_000))
def test_shown_share_reads_as_the_same(millionths: int) -> None:
    value = Percentage.parse(f"{millionths // 10**6}.{millionths % 10**6:06d}%")
    assert Percentage.parse(Percentage.format(value)) == value


@given(st.sampled_from([*QUANTITIES, Percentage, Span]), st.text() | st.integers() | st.floats())
def test_any_text_is_a_value_or_a_refusal(quantity: Quantity | type[Span], text: object) -> None:
    assert _value_or_message(quantity, text) != ""
