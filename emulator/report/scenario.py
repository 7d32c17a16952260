"""A picture of a scenario: the time of each token over the time of the run, the events marked."""

from __future__ import annotations

from pathlib import Path

from emulator.report.plots import bare, save
from emulator.report.tables import under
from emulator.workload.program import Program
from emulator.workload.recording import Recording
from emulator.workload.result import Result
from emulator.workload.summarise import token_times


def draw_scenario(result: Result, program: Program, recording: Recording, file: Path) -> None:
    """Token time in us, on a logarithmic scale, against when each token ended, in ms after the common start.

    Raises UsageError where the file cannot be written.
    """
    # Without a display: the figure is drawn straight into the file.
    from matplotlib.figure import Figure

    starts, ends = token_times(recording, program)
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot((ends - recording.start_ns) / 1e6, (ends - starts) / 1e3, ".", markersize=3, color="#3b6ea5")
    axes.set_yscale("log")
    for event in result.events:
        if event.happened:
            axes.axvline(event.at_ns / 1e6, color="#b5472f", linewidth=1)
            place = (event.at_ns / 1e6, 0.98)
            where = axes.get_xaxis_transform()
            axes.text(*place, f" {event.what}", transform=where, rotation=90, va="top", fontsize=7, color="#b5472f")
    axes.set_xlabel("time after the common start in ms")
    axes.set_ylabel("token time in us")
    axes.set_title(f"{result.topology}, {under(result)} ({result.clock} clock)", loc="left", fontsize=10)
    bare(axes)
    save(figure, file)
