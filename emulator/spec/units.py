"""Quantities as a person writes them: `40us`, `80Gbit/s`, `512GiB`, `0.1%`, `30us..50us`. A unit is always written.

Each quantity (`DURATION`, `RATE`, ...) parses and formats its texts; each annotated type (`Duration`, `Rate`, ...) is
the same as a field of a pydantic model and as a string with a pattern in JSON Schema. Values are computed as fractions
of whole numbers: nothing is rounded, and what cannot be held exactly is refused.
"""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction as Ratio
from typing import Annotated, Any, NamedTuple

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

NS_PER_S = 1_000_000_000

_NUMBER = r"[0-9]{1,18}(?:\.[0-9]{1,18})?"
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@dataclass(frozen=True, eq=False)
class Quantity:
    """One kind of quantity: its units and bounds. An instance annotates an `int` field of a pydantic model."""

    name: str
    units: dict[str, int]
    """Each unit and what one of it is in `base`."""
    base: str
    low: str
    high: str
    examples: tuple[str, ...]
    shown: tuple[str, ...] = ()
    """Units that `format` may use; empty: all."""
    multiple: int = 1
    reason: str = ""
    """Why a value has to be a multiple of `multiple`."""

    @property
    def pattern(self) -> str:
        return rf"^{_NUMBER}(?:{'|'.join(self.units)})$"

    @property
    def example(self) -> str:
        return f"write for example {' or '.join(self.examples)}"

    def parse(self, text: object) -> int:
        """The value in `base`. Raises ValueError with what is wrong and what to write."""
        if text is None:
            raise ValueError(f"has no value; {self.example}")
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise ValueError(f"{shorten(text)} is not {self.name}; {self.example}")
        split = re.fullmatch(rf"\s*([-+]?)({_NUMBER})\s*(\S*)\s*", str(text))
        if not split:
            raise ValueError(f"{shorten(text)} is not {self.name}; {self.example}")
        sign, number, unit = split.groups()
        if sign == "-":
            raise ValueError(f"{shorten(text)} is negative; {self._bounds}")
        if not unit:
            units = [example.lstrip("0123456789.") for example in self.examples]
            raise ValueError(f"{text} has no unit; write {' or '.join(dict.fromkeys(number + unit for unit in units))}")
        if re.match(r"[eE][-+]?[0-9]", unit):
            raise ValueError(f"{shorten(text)} has an exponent; write the number out; {self.example}")
        if unit not in self.units:
            raise ValueError(f"{shorten(text)} has the unknown unit {shorten(unit)}; {self._suggest(number, unit)}")
        if str(text) != number + unit:
            raise ValueError(f"{shorten(text)} is spelt in another way; write {number + unit}")
        value = Ratio(number) * self.units[unit]
        if not self._value(self.low) <= value <= self._value(self.high):
            raise ValueError(f"{text} is out of bounds; {self._bounds}")
        if value % self.multiple:
            raise ValueError(f"{text} is not {self._whole}; write {self.format(_nearest(value, self.multiple))}")
        return int(value)

    def format(self, value: int) -> str:
        """`value` (in `base`) in the unit that makes the shortest exact text."""
        texts = [self.base_text(value)]
        for unit in self.shown or self.units:
            number = Ratio(value, self.units[unit])
            if number >= 1 and (decimal := _decimal(number)) is not None:
                texts.append(decimal + unit)
        return min(reversed(texts), key=len)

    def base_text(self, value: int) -> str:
        return f"{value}{self.base}"

    def _value(self, text: str) -> Ratio:
        number, unit = re.fullmatch(rf"({_NUMBER})(\S+)", text).groups()  # type: ignore[union-attr]
        return Ratio(number) * self.units[unit]

    @property
    def _bounds(self) -> str:
        return f"write {self.low} to {self.high}"

    @property
    def _whole(self) -> str:
        what = f"a whole number of {self.base}" if self.multiple == 1 else f"a multiple of {self.multiple} {self.base}"
        return f"{what}{self.reason and f' ({self.reason})'}"

    def _suggest(self, number: str, unit: str) -> str:
        spellings = {known.lower(): known for known in self.units}
        aliases = {alias: unit for alias, unit in _ALIASES.items() if unit in self.units}
        names = spellings | aliases
        close = get_close_matches(unit.lower(), list(names), n=1, cutoff=0.6)
        units = f"units: {', '.join(self.units)}"
        return f"write {number}{names[close[0]]} ({units})" if close else f"{self.example} ({units})"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.parse, serialization=core_schema.plain_serializer_function_ser_schema(self.format)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": self.pattern, "examples": list(self.examples)}


_ALIASES = {
    "sec": "s",
    "seconds": "s",
    "msec": "ms",
    "usec": "us",
    "µs": "us",
    "μs": "us",
    "nsec": "ns",
    "bps": "bit/s",
    "kbps": "kbit/s",
    "mbps": "Mbit/s",
    "gbps": "Gbit/s",
    "tbps": "Tbit/s",
    "gbit": "Gbit/s",
    "mbit": "Mbit/s",
    "gb/sec": "GB/s",
    "k": "kB",
    "m": "MB",
    "g": "GB",
    "t": "TB",
    "bytes": "B",
    "byte": "B",
    "bits": "bit",
}


def _units(symbol: str, prefixes: dict[str, int], factor: int = 1) -> dict[str, int]:
    return {prefix + symbol: size * factor for prefix, size in prefixes.items()}


def shorten(value: object) -> str:
    """A value inside a message, as YAML would show it, cut to a readable length."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:40]}... ({len(text)} characters)"


def _decimal(number: Ratio) -> str | None:
    """`number` as a decimal of at most 12 places; None where that is not exact."""
    places = 12
    scaled = number * 10**places
    if scaled.denominator != 1:
        return None
    whole, rest = divmod(int(scaled), 10**places)
    return f"{whole}.{rest:0{places}d}".rstrip("0").rstrip(".")


def _nearest(value: Ratio, multiple: int) -> int:
    return max(round(value / multiple), 1) * multiple


_BYTE_UNITS = _units("B", _DECIMAL | _BINARY)
_DURATION_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": NS_PER_S}

DURATION = Quantity("a duration", _DURATION_UNITS, "ns", "0ns", "100s", ("40us", "5ms", "1.5s"))
RATE = Quantity(
    name="a rate",
    units=_units("bit/s", _DECIMAL) | _units("B/s", _DECIMAL | _BINARY, 8),
    base="bit/s",
    low="1kbit/s",
    high="100Tbit/s",
    examples=("80Gbit/s", "10GB/s"),
    shown=tuple(_units("bit/s", _DECIMAL)),
    multiple=8,
    reason="the kernel holds whole bytes per second",
)
BANDWIDTH = Quantity(
    "a memory bandwidth", _units("B/s", _DECIMAL | _BINARY), "B/s", "1MB/s", "1000TB/s", ("819GB/s", "100GiB/s")
)
BYTES = Quantity("a size", _BYTE_UNITS, "B", "0B", "1024TiB", ("14336B", "256GB", "512GiB"))
MTU = Quantity("an MTU", {"B": 1, "kB": 1000, "KiB": 1024}, "B", "576B", "65535B", ("9000B", "1500B"))
PRECISION = Quantity("a precision", {"bit": 1}, "bit", "1bit", "64bit", ("16bit", "8bit"))

Duration = Annotated[int, DURATION]
"""Nanoseconds, 0 to 100 s."""
Rate = Annotated[int, RATE]
"""Bits per second, a multiple of 8, 1 kbit/s to 100 Tbit/s."""
Bandwidth = Annotated[int, BANDWIDTH]
"""Bytes per second."""
Bytes = Annotated[int, BYTES]
"""Bytes."""
Mtu = Annotated[int, MTU]
"""Bytes of the largest packet, IP header included."""
Precision = Annotated[int, PRECISION]
"""Bits per value."""


class Percentage:
    """A share written in per cent, 0 % to 100 %. Annotates a `float` field that holds 0 to 1."""

    pattern = rf"^{_NUMBER}%$"

    @staticmethod
    def parse(text: object) -> float:
        """`0.1%` is 0.001. Raises ValueError with what is wrong and what to write."""
        number = re.fullmatch(rf"(-?{_NUMBER})(%?)", str(text))
        if isinstance(text, bool) or not number:
            raise ValueError(f"{shorten(text)} is not a share; write it in per cent, for example 0.1%")
        if not number[2]:
            percent = _decimal(Ratio(number[1].lstrip("-")) * 100)
            share = f" (or {percent}%, if a share of 1 is meant)" if Ratio(number[1]) <= 1 else ""
            raise ValueError(f"{text} has no unit; write {number[1]}%{share}")
        if not 0 <= Ratio(number[1]) <= 100:
            raise ValueError(f"{text} is out of bounds; write 0% to 100%")
        return float(Ratio(number[1]) / 100)

    @staticmethod
    def format(value: float) -> str:
        return f"{_decimal(Ratio(str(value)) * 100) or value * 100}%"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.plain_serializer_function_ser_schema(cls.format)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": cls.pattern, "examples": ["0.1%"]}


Fraction = Annotated[float, Percentage]
"""A share of 0 to 1, written in per cent."""


class Span(NamedTuple):
    """A duration with its spread: `30us..50us` is 40 us, 10 us to either side; `40us` has no spread. Nanoseconds."""

    middle_ns: int
    half_width_ns: int

    @classmethod
    def parse(cls, text: object) -> "Span":
        """Raises ValueError with what is wrong and what to write."""
        if not isinstance(text, str) or ".." not in text:
            return cls(DURATION.parse(text), 0)
        first, _, last = text.partition("..")
        low, high = (DURATION.parse(_number(end)) for end in (first, last))
        if low >= high:
            raise ValueError(f"{shorten(text)} goes from large to small; write the smaller value first, as 30us..50us")
        if (low + high) % 2:
            raise ValueError(f"the middle of {text} is not a whole number of ns; move one end by 1ns")
        return cls((low + high) // 2, (high - low) // 2)

    def format(self) -> str:
        ends = (self.middle_ns - self.half_width_ns, self.middle_ns + self.half_width_ns)
        return "..".join(DURATION.format(end) for end in ends) if self.half_width_ns else DURATION.format(ends[0])

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.parse, serialization=core_schema.plain_serializer_function_ser_schema(cls.format)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        one = DURATION.pattern[1:-1]
        return {"type": "string", "pattern": rf"^{one}(?:\.\.{one})?$", "examples": ["40us", "30us..50us"]}


def _number(text: str) -> str | int:
    """The end of a range; a bare number is one, so that its message is that of a bare number."""
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else text
