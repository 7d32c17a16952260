"""Pictures of results, and what all pictures have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from emulator.errors import UsageError
from emulator.report.tables import under
from emulator.workload.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def bare(axes: Axes) -> None:
    """Leave out the frame's sides that carry no scale."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def save(figure: Figure, file: Path) -> None:
    """Write a picture, its kind by the file's ending. Raises UsageError where the file cannot be written."""
    try:
        figure.savefig(file, dpi=150)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; name a file that can be written") from None


def draw_comparison(results: list[Result], file: Path) -> None:
    """Bars of token time, p50 with a whisker to p99, each named by topology and workload.

    Raises UsageError where the file cannot be written.
    """
    # Without a display: the figure is drawn straight into the file.
    from matplotlib.figure import Figure

    places = range(len(results))
    middle = [result.token_time_ns.p50 / 1000 for result in results]
    upper = [(result.token_time_ns.p99 - result.token_time_ns.p50) / 1000 for result in results]
    figure = Figure(figsize=(8, 1.2 + 0.8 * len(results)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(places, middle, xerr=[[0] * len(upper), upper], capsize=3, color="#3b6ea5", ecolor="#222222")
    axes.bar_label(
        bars,
        [
            f"{value:,.1f} us, {result.tokens_per_second:,.0f} tokens/s, "
            f"{result.tokens_per_second / results[0].tokens_per_second:.2f} x"
            for value, result in zip(middle, results, strict=True)
        ],
        padding=14,
    )
    # By number: two results may have one name.
    axes.set_yticks(places, [f"{result.topology}\n{under(result)}" for result in results])
    axes.invert_yaxis()
    axes.set_xlim(0, max(a + b for a, b in zip(middle, upper, strict=True)) * 1.6)
    axes.set_xlabel("time of a token in us: p50, whisker to p99")
    clocks = sorted({f"{result.clock} clock, {result.kernel} kernel" for result in results})
    axes.set_title(f"Measured over real packets ({'; '.join(clocks)})", loc="left", fontsize=10)
    bare(axes)
    save(figure, file)
