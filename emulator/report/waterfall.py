"""The steps of an ablation as tables and as a plot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from emulator.report.plots import bare, save
from emulator.report.tables import us

if TYPE_CHECKING:
    from emulator.study.ablate import Ablation


def tables(ablation: Ablation) -> list[tuple[str, list[str], list[list[str]]]]:
    """Title, columns and rows of the waterfall, and of what a message is charged for at each step."""
    first = ablation.steps[0]
    title = (
        f"{ablation.topology}, {ablation.workload}, from {ablation.protocol}: {ablation.kernel} kernel, "
        f"{ablation.clock} clock, ideal cables, medians"
    )
    rows = [
        [
            step.name,
            us(step.exchange_delay_ns),
            us(step.token_time_ns),
            us(step.gain_ns) if number else "",
            us(step.gain_alone_ns) if number else "",
            us(step.kernel_ns),
            f"{step.kernel_share:.1%}",
            f"{step.once_ns / 1e6:,.1f}" if step.once_ns else "",
        ]
        for number, step in enumerate(ablation.steps)
    ]
    columns = ["step", "exchange us", "token us", "gain us", "alone us", "kernel us", "share", "once, ms"]
    names = list(dict.fromkeys(name for step in ablation.steps for name in step.costs_ns))
    costs = [
        [name, *(us(step.costs_ns[name]) if name in step.costs_ns else "" for step in ablation.steps)] for name in names
    ]
    # Cable and connections are really crossed: they are what is not charged.
    rest = [us(step.exchange_delay_ns - sum(step.costs_ns.values())) for step in ablation.steps]
    return [
        (title, columns, rows),
        (
            "what a message is charged for, both ends, in us",
            ["cost", first.name, *(f"+ {step.name}" for step in ablation.steps[1:])],
            [*costs, ["cable, connection", *rest]],
        ),
    ]


def draw(ablation: Ablation, file: Path) -> None:
    """The waterfall: what is left of an exchange after each step, and what the step took off.

    Raises UsageError where the file cannot be written.
    """
    # Without a display: the figure is drawn straight into the file.
    from matplotlib.figure import Figure

    steps = ablation.steps
    figure = Figure(figsize=(9, 1.5 + 0.7 * len(steps)), layout="constrained")
    axes = figure.subplots()
    names = [step.name if not number else f"+ {step.name}" for number, step in enumerate(steps)]
    left = [step.exchange_delay_ns / 1000 for step in steps]
    kernel = [step.kernel_ns / 1000 for step in steps]
    gains = [step.gain_ns / 1000 for step in steps]
    axes.barh(names, kernel, color="#a5543b", label="kernel")
    axes.barh(names, [a - b for a, b in zip(left, kernel, strict=True)], left=kernel, color="#3b6ea5", label="all else")
    axes.barh(names, gains, left=left, color="none", edgecolor="#888888", linestyle="--", label="taken off")
    for number, step in enumerate(steps):
        taken = f" ({gains[number]:,.1f} less; alone {step.gain_alone_ns / 1000:,.1f} less)" if number else ""
        axes.text(left[number] + gains[number], number, f"  {left[number]:,.1f} us{taken}", va="center", fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, max(left) * 1.5)
    axes.set_xlabel("an exchange in us, median")
    axes.legend(loc="lower right", frameon=False)
    axes.set_title(
        f"{ablation.topology}, from {ablation.protocol} ({ablation.clock} clock, {ablation.kernel} kernel)",
        loc="left",
        fontsize=10,
    )
    bare(axes)
    save(figure, file)
