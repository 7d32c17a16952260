"""A serving study as tables and as a picture."""

from pathlib import Path

from emulator.report.plots import bare, save
from emulator.report.tables import Table
from emulator.study.serve import Serving
from emulator.workload.result import Spread


def summary(serving: Serving) -> list[str]:
    """What was served, and where."""
    drafted = (
        f", {serving.draft_tokens} drafted tokens at {serving.acceptance:.0%} acceptance"
        if serving.draft_tokens
        else ""
    )
    return [
        f"{serving.model}, {serving.engine} over {serving.nodes} nodes of {serving.topology}: {serving.requests} "
        f"requests, {serving.prompt_tokens} prompt and {serving.output_tokens} output tokens, "
        f"at most {serving.max_batch} sequences at once{drafted}",
        f"{serving.kernel} kernel, {serving.clock} clock, seed {serving.seed}",
    ]


def outcomes(serving: Serving) -> Table:
    """Both ways of batching side by side, times in milliseconds."""
    rows = [
        [
            one.batching,
            f"{one.tokens_per_second:,.1f}",
            f"{one.requests_per_second:,.3f}",
            *_two(one.time_to_first_token_ns),
            *_two(one.time_per_output_token_ns),
            *_two(one.latency_ns),
            f"{one.mean_batch:.1f}",
        ]
        for one in serving.outcomes
    ]
    names = ("first token", "output token", "latency")
    columns = [f"{name} {which}" for name in names for which in ("p50", "p99")]
    return Table("times in ms", ["batching", "tokens/s", "requests/s", *columns, "mean batch"], rows)


def steps(serving: Serving) -> Table:
    """Each size of step that was measured."""
    rows = [
        [
            str(step.tokens),
            str(step.sequences),
            str(step.payload_bytes),
            _ms(step.compute_time_ns),
            _ms(step.step_time_ns - step.compute_time_ns),
            _ms(step.step_time_ns),
            str(step.runs),
        ]
        for step in serving.steps
    ]
    columns = ["tokens", "sequences", "bytes a message", "compute ms", "communication ms", "step ms", "times taken"]
    return Table("step times, as measured", columns, rows, left=0)


def draw_serving(serving: Serving, file: Path) -> None:
    """Bars of throughput and of p50 and p99 times. Raises UsageError where the file cannot be written."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    panels = figure.subplots(1, 4)
    names = [one.batching for one in serving.outcomes]
    panels[0].bar(names, [one.tokens_per_second for one in serving.outcomes], color="#3b6ea5")
    panels[0].set_title("output tokens/s", loc="left", fontsize=10)
    spreads = {
        "time to first token, ms": [one.time_to_first_token_ns for one in serving.outcomes],
        "time per output token, ms": [one.time_per_output_token_ns for one in serving.outcomes],
        "latency, ms": [one.latency_ns for one in serving.outcomes],
    }
    for axes, (title, found) in zip(panels[1:], spreads.items(), strict=True):
        middle, upper = (
            [value / 1e6 for value in values] for values in zip(*((s.p50, s.p99) for s in found), strict=True)
        )
        axes.bar(names, upper, color="#c9d7e6", label="p99")
        axes.bar(names, middle, color="#3b6ea5", label="p50")
        axes.set_title(title, loc="left", fontsize=10)
    panels[-1].legend(frameon=False, fontsize=8)
    for axes in panels:
        bare(axes)
    figure.suptitle(summary(serving)[0], fontsize=9, x=0.01, ha="left")
    save(figure, file)


def _two(spread: Spread) -> list[str]:
    return [_ms(spread.p50), _ms(spread.p99)]


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:,.3f}"
