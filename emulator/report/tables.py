"""A result as rows for a person: each table is a title, its columns and its rows."""

from typing import NamedTuple

from emulator.spec.units import RATE
from emulator.workload.result import CableDirection, CableResult, Result, Spread


class Table(NamedTuple):
    title: str
    columns: list[str]
    rows: list[list[str]]
    left: int = 1
    """Columns that are words."""


def summary(result: Result) -> list[str]:
    """What was run and where, in a few lines."""
    name = f"{result.topology}, {result.workload}"
    parameters = ", ".join(f"{key} {value}" for key, value in result.parameters.items() if value != "")
    return [
        f"{name}: {result.pattern}{f' ({parameters})' if parameters else ''} over {len(result.nodes)} nodes, "
        f"{result.payload_bytes} B a message, {result.tokens} tokens{', ideal cables' if result.ideal else ''}"
        f"{f', under {result.protocol}' if result.protocol else ''}",
        f"{result.kernel} kernel, {result.clock} clock, seed {result.seed}; {result.wall_seconds:.1f} s of wall time",
        f"{result.tokens_per_second:,.1f} tokens/s",
    ]


def times(result: Result) -> Table:
    """Token, communication and exchange times in microseconds."""
    rows = [
        ("token", result.token_time_ns),
        ("communication", result.communication_time_ns),
        ("exchange", result.exchange_delay_ns),
        ("exchange, as requested", result.exchange_requested_ns),
    ]
    return Table(
        "",
        ["time in us", "min", "p50", "p90", "p99", "max", "mean"],
        [[name, *_spread(spread)] for name, spread in rows] + [["compute", *[""] * 5, us(result.compute_time_ns)]],
    )


def cables(result: Result) -> Table:
    """Each direction of each cable: what was asked for, what the kernel holds, what went over it."""
    rows = [row for cable in result.cables for row in _cable(cable)]
    columns = ["from", "to", "profile", "delay us", "held", "jitter", "rate", "held", "packets", "MB", "used", "drops"]
    return Table("", columns, rows, left=3)


def _cable(cable: CableResult) -> list[list[str]]:
    return [_direction(cable, direction) for direction in (cable.a_to_b, cable.b_to_a)]


def _direction(cable: CableResult, direction: CableDirection) -> list[str]:
    asked, held, traffic = direction.requested, direction.held, direction.traffic
    return [
        direction.sender,
        direction.receiver,
        cable.profile,
        us(asked.delay_ns),
        us(held.delay_ns),
        f"±{us(asked.jitter_ns)}" if asked.jitter_ns else "",
        RATE.format(asked.rate_bps),
        RATE.format(held.rate_bps),
        str(traffic.packets),
        f"{traffic.bytes / 1e6:.3f}",
        f"{direction.utilisation:.2%}",
        str(traffic.drops),
    ]


def _spread(spread: Spread) -> list[str]:
    return [us(value) for value in (spread.min, spread.p50, spread.p90, spread.p99, spread.max, spread.mean)]


def events(result: Result) -> Table:
    """What each event of the scenario cost, times in microseconds."""

    def known(value: int | None) -> str:
        return "" if value is None else us(value)

    rows = [
        [
            event.what if event.happened else f"{event.what} (the run had ended)",
            str(event.tokens_before),
            str(event.tokens_until_next),
            known(event.usual_token_time_ns),
            known(event.token_time_ns),
            known(event.slowest_token_ns),
            known(event.recovered_after_ns),
        ]
        for event in result.events
    ]
    columns = ["event", "tokens before", "until next", "usual us", "p50 us", "slowest us", "recovered after us"]
    return Table("", columns, rows)


def us(nanoseconds: float) -> str:
    """Microseconds with all that a nanosecond clock gives."""
    return f"{nanoseconds / 1000:,.3f}"


def under(result: Result) -> str:
    """The workload of a result, and its protocol."""
    return f"{result.workload} @{result.protocol}" if result.protocol else result.workload


def comparison(results: list[Result]) -> Table:
    """Results side by side; ratios are to the first, of tokens/s."""
    first = results[0]
    rows = [
        [
            result.topology,
            under(result),
            f"{result.clock}, {result.kernel}",
            str(len(result.nodes)),
            str(len(result.cables)),
            us(result.exchange_delay_ns.p50),
            us(result.token_time_ns.p50),
            us(result.token_time_ns.p99),
            f"{result.tokens_per_second:,.1f}",
            f"{result.tokens_per_second / first.tokens_per_second:.2f}",
        ]
        for result in results
    ]
    columns = ["topology", "workload", "clock, kernel", "nodes", "cables", "exchange us", "token us", "p99", "tokens/s"]
    return Table("", [*columns, "ratio"], rows, left=3)
