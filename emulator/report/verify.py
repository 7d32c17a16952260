"""Requested against achieved: the table of a verification, and its plot."""

from pathlib import Path

from emulator.report.plots import bare, save
from emulator.study.verify import Verdict, Verification

COLUMNS = [
    "from",
    "to",
    "profile",
    "delay us",
    "p50",
    "p99",
    "rate Gbit/s",
    "achieved",
    "KS",
    "bound",
    "lost",
    "verdict",
]


def rows(found: Verification, everything: bool) -> list[list[str]]:
    """One row for each direction; without `everything` only those that are not as requested, and the first ten."""
    made: list[list[str]] = []
    for cable in found.cables:
        for way in (cable.a_to_b, cable.b_to_a):
            if everything or not way.ok or len(made) < 10:
                made.append(_row(cable.profile, way))
    return made


def _row(profile: str, way: Verdict) -> list[str]:
    return [
        way.sender,
        way.receiver,
        profile,
        f"{way.requested_delay_ns / 1000:,.3f}",
        f"{way.delay_ns['p50'] / 1000:,.3f}",
        f"{way.delay_ns['p99'] / 1000:,.3f}",
        f"{way.requested_rate_bps / 1e9:g}",
        f"{way.rate_bps / 1e9:,.3f}" if way.rate_bps else "",
        f"{way.jitter_distance:.3f}" if way.jitter_bound else "",
        f"{way.jitter_bound:.3f}" if way.jitter_bound else "",
        f"{way.loss.achieved:.2%}",
        "ok" if way.ok else "NOT OK",
    ]


def draw(found: Verification, file: Path) -> None:
    """Delay and rate of every direction, requested across and achieved up. Raises UsageError."""
    from matplotlib.figure import Figure

    ways = [way for cable in found.cables for way in (cable.a_to_b, cable.b_to_a)]
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    delay, rate = figure.subplots(1, 2)
    colours = ["#3b6ea5" if way.ok else "#c0392b" for way in ways]
    wanted = [way.requested_delay_ns / 1000 for way in ways]
    middle = [way.delay_ns["p50"] / 1000 for way in ways]
    spread = [
        [way.delay_ns["p50"] / 1000 - way.delay_ns["min"] / 1000 for way in ways],
        [way.delay_ns["max"] / 1000 - way.delay_ns["p50"] / 1000 for way in ways],
    ]
    delay.errorbar(wanted, middle, yerr=spread, fmt="none", ecolor="#bbbbbb", capsize=2)
    delay.scatter(wanted, middle, c=colours, s=14, zorder=3)
    delay.set_title("delay in us: median, whiskers to all", loc="left", fontsize=10)
    measured = [(way, colour) for way, colour in zip(ways, colours, strict=True) if way.rate_bps]
    rate.scatter(
        [way.requested_rate_bps / 1e9 for way, _ in measured],
        [way.rate_bps / 1e9 for way, _ in measured],
        c=[colour for _, colour in measured],
        s=14,
        zorder=3,
    )
    rate.set_title("rate in Gbit/s", loc="left", fontsize=10)
    for axes in (delay, rate):
        axes.axline((0, 0), slope=1, color="#888888", linewidth=0.8)
        axes.set_xlabel("requested")
        axes.set_ylabel("achieved")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        bare(axes)
    figure.suptitle(f"{found.topology}: {found.clock} clock, {found.kernel} kernel", x=0.01, ha="left", fontsize=10)
    save(figure, file)
