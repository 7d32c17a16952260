"""Pictures of results."""

from pathlib import Path

from emulator.errors import UsageError
from emulator.workload.result import Result


def draw_comparison(results: list[Result], file: Path) -> None:
    """Bars of token time, p50 with a whisker to p99, each named by topology and workload.

    Raises UsageError where the file cannot be written.
    """
    # Without a display: the figure is drawn straight into the file.
    from matplotlib.figure import Figure

    names = [f"{result.topology}\n{result.workload}" for result in results]
    middle = [result.token_time_ns.p50 / 1000 for result in results]
    upper = [(result.token_time_ns.p99 - result.token_time_ns.p50) / 1000 for result in results]
    figure = Figure(figsize=(8, 1.2 + 0.8 * len(results)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(names, middle, xerr=[[0] * len(upper), upper], capsize=3, color="#3b6ea5", ecolor="#222222")
    axes.bar_label(
        bars,
        [
            f"{value:,.1f} us, {result.tokens_per_second:,.0f} tokens/s"
            for value, result in zip(middle, results, strict=True)
        ],
        padding=14,
    )
    axes.invert_yaxis()
    axes.set_xlim(0, max(a + b for a, b in zip(middle, upper, strict=True)) * 1.45)
    axes.set_xlabel("time of a token in us: p50, whisker to p99")
    clocks = sorted({f"{result.clock} clock, {result.kernel} kernel" for result in results})
    axes.set_title(f"Measured over real packets ({'; '.join(clocks)})", loc="left", fontsize=10)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    try:
        figure.savefig(file, dpi=150)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; name a file that can be written") from None
