"""A timeline as a trace for a viewer (https://ui.perfetto.dev, chrome://tracing) and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from emulator.errors import UsageError
from emulator.report.plots import bare, save
from emulator.workload.timeline import Activity, Interval, Timeline

COLOURS: dict[Activity, str] = {"compute": "#3b6ea5", "send": "#d98324", "wait": "#e4e4e4", "other": "#9a9a9a"}
PATH_COLOUR = "#c0272d"

Event = dict[str, Any]


def write_trace(timeline: Timeline, title: str, file: Path) -> None:
    """Writes events in the trace event format, times in microseconds since the first token's start.

    One track for each node (compute, send, wait), one for the critical path, one for the tokens, and every message as
    an asynchronous event from its sender's send call to the whole message received. Format: "Trace Event Format",
    https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Raises UsageError where the file
    cannot be written.
    """
    start = timeline.tokens[0].start_ns
    names = timeline.nodes
    path_track, token_track = len(names), len(names) + 1
    events: list[Event] = [{"ph": "M", "pid": 0, "name": "process_name", "args": {"name": title}}]
    for track, name in enumerate((*names, "critical path", "tokens")):
        events.append({"ph": "M", "pid": 0, "tid": track, "name": "thread_name", "args": {"name": name}})
        events.append({"ph": "M", "pid": 0, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}})

    def span(track: int, name: str, kind: str, begin_ns: int, end_ns: int, **arguments: Any) -> Event:
        return {
            "ph": "X",
            "pid": 0,
            "tid": track,
            "name": name,
            "cat": kind,
            "ts": (begin_ns - start) / 1000,
            "dur": (end_ns - begin_ns) / 1000,
            "args": arguments,
        }

    events += [span(one.node, _label(one, names), one.what, one.start_ns, one.end_ns) for one in timeline.intervals]
    for token in timeline.tokens:
        events.append(span(token_track, f"token {token.number}", "token", token.start_ns, token.end_ns))
        for one in token.path:
            label = f"{names[one.node]}: {_label(one, names)}"
            events.append(span(path_track, label, f"path-{one.what}", one.start_ns, one.end_ns, token=token.number))
    for number, message in enumerate(timeline.messages):
        common = {
            "pid": 0,
            "tid": message.sender,
            "cat": "message",
            "id": number,
            "name": f"{names[message.sender]} to {names[message.receiver]}",
        }
        about = {"bytes": message.size, "plane": message.plane or "by routes"}
        events.append({"ph": "b", "ts": (message.sent_ns - start) / 1000, "args": about, **common})
        events.append({"ph": "e", "ts": (message.received_ns - start) / 1000, **common})
    _write(file, msgspec.json.encode({"displayTimeUnit": "ns", "traceEvents": events}))


def draw_timeline(timeline: Timeline, title: str, file: Path) -> None:
    """Draws a timeline: a row for each node, a line for each message, the critical path marked.

    Raises UsageError where the file cannot be written.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    start = timeline.tokens[0].start_ns

    def us(time_ns: int) -> float:
        return (time_ns - start) / 1000

    figure = Figure(figsize=(12, 1.8 + 0.6 * len(timeline.nodes)), layout="constrained")
    axes = figure.subplots()
    for what, colour in COLOURS.items():
        for node in range(len(timeline.nodes)):
            bars = [
                (us(one.start_ns), (one.end_ns - one.start_ns) / 1000)
                for one in timeline.intervals
                if one.what == what and one.node == node
            ]
            axes.broken_barh(bars, (node - 0.3, 0.6), facecolors=colour)
    ways = [((us(m.wire_ns), m.sender), (us(m.received_ns), m.receiver)) for m in timeline.messages]
    axes.add_collection(LineCollection(ways, colors="#555555", linewidths=0.5))
    critical = [
        ((us(one.start_ns), one.node), (us(one.end_ns), one.peer if one.what == "wire" else one.node))
        for token in timeline.tokens
        for one in token.path
    ]
    axes.add_collection(LineCollection(critical, colors=PATH_COLOUR, linewidths=2.0))
    axes.set_yticks(range(len(timeline.nodes)), timeline.nodes)
    axes.set_ylim(len(timeline.nodes) - 0.5, -0.5)
    axes.set_xlim(0, us(max(token.end_ns for token in timeline.tokens)))
    axes.set_xlabel("us since the token began")
    axes.set_title(title, loc="left", fontsize=10)
    shown = {one.what for one in timeline.intervals}
    patches = [Patch(color=colour, label=what) for what, colour in COLOURS.items() if what in shown]
    axes.legend(
        handles=[*patches, Patch(color=PATH_COLOUR, label="critical path")],
        loc="upper left",
        bbox_to_anchor=(1, 1),
        frameon=False,
    )
    bare(axes)
    save(figure, file)


def _label(one: Interval, names: tuple[str, ...]) -> str:
    if one.peer < 0:
        return one.what
    return {"wait": "wait for", "send": "send to", "wire": "on the wire to"}[one.what] + f" {names[one.peer]}"


def _write(file: Path, data: bytes) -> None:
    try:
        file.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; name a file that can be written") from None
