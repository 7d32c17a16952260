"""Requests to a server: drawn from a seed, or read from a trace."""

import csv
import math
from pathlib import Path
from random import Random
from typing import NamedTuple

from emulator.errors import SpecError

COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")
LARGEST_TRACE = 100_000
LARGEST_REQUEST = 1_000_000
LARGEST_ARRIVAL_S = 1_000_000


class Request(NamedTuple):
    arrival_ns: int
    """Since the first request may come."""
    prompt_tokens: int
    output_tokens: int


class Range(NamedTuple):
    """Numbers of tokens, both ends included, all as likely."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> "Range":
        """`32..128`, or `64` for that alone. Raises ValueError with what to write."""
        low, _, high = text.partition("..")
        try:
            found = cls(int(low), int(high or low))
        except ValueError:
            raise ValueError(f"{text!r} is no range of tokens; write for example 32..128") from None
        if not 1 <= found.low <= found.high <= LARGEST_REQUEST:
            raise ValueError(f"{text} is out of bounds; write 1 to {LARGEST_REQUEST}, the smaller number first")
        return found


def draw(count: int, per_second: float, prompt: Range, output: Range, seed: int) -> tuple[Request, ...]:
    """`count` requests of a Poisson process: the time from one to the next is exponential, its mean 1 / `per_second`.
    The same seed gives the same requests."""
    random = Random(seed)
    requests, now = [], 0.0
    for _ in range(count):
        now += random.expovariate(per_second)
        requests.append(Request(round(now * 1e9), random.randint(*prompt), random.randint(*output)))
    return tuple(requests)


def read(file: Path) -> tuple[Request, ...]:
    """A trace: CSV with a line `arrival_s,prompt_tokens,output_tokens`, then one for each request, in any order.

    Raises SpecError that names the line.
    """
    requests = []
    try:
        with file.open(newline="") as lines:
            table = csv.reader(lines)
            header = tuple(name.strip() for name in next(table, []))
            if header != COLUMNS:
                raise SpecError(
                    f"{file}:1: the columns are {', '.join(header) or 'missing'}; write {','.join(COLUMNS)}"
                )
            for cells in table:
                if cells:
                    requests.append(_request(cells, f"{file}:{table.line_num}"))
                if len(requests) > LARGEST_TRACE:
                    raise SpecError(f"{file}: holds more than {LARGEST_TRACE} requests; cut it into several")
    except OSError as error:
        raise SpecError(f"{file}: {error.strerror}; name a file that can be read") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise SpecError(f"{file}: is no CSV ({error}); write lines of {','.join(COLUMNS)}") from None
    if not requests:
        raise SpecError(f"{file}: holds no request; write lines of {','.join(COLUMNS)}")
    return tuple(sorted(requests))


def _request(cells: list[str], place: str) -> Request:
    try:
        arrival, prompt, output = cells
        seconds, sizes = float(arrival), (int(prompt), int(output))
    except ValueError:
        raise SpecError(f"{place}: {','.join(cells)[:60]!r} is no request; write for example 0.25,128,64") from None
    if not (math.isfinite(seconds) and 0 <= seconds <= LARGEST_ARRIVAL_S):
        raise SpecError(f"{place}: arrival_s {arrival.strip()} is out of bounds; write 0 to {LARGEST_ARRIVAL_S}")
    for name, size in zip(COLUMNS[1:], sizes, strict=True):
        if not 1 <= size <= LARGEST_REQUEST:
            raise SpecError(f"{place}: {name} {size} is out of bounds; write 1 to {LARGEST_REQUEST}")
    return Request(round(seconds * 1e9), *sizes)
