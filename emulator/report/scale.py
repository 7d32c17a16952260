"""A scaling study as tables and as a picture."""

from collections.abc import Sequence
from pathlib import Path

from emulator.report.plots import bare, save
from emulator.report.tables import Table
from emulator.study.scale import COUNTS, LIMITS, SENSIBLE_NS, WANTED, Crossing, Point, Scaling


def ports(scaling: Scaling) -> Table:
    """What each topology takes of a node's ports, and whether a driver lets it."""
    rows = [
        [one.topology, str(one.cables), str(one.ports), *("yes" if one.fits[str(limit)] else "no" for limit in LIMITS)]
        for one in scaling.ports
    ]
    return Table("", ["topology", "cables", "ports a node", *(f"fits {limit} usable" for limit in LIMITS)], rows)


def efficiencies(scaling: Scaling) -> Table:
    """Scaling efficiency and tokens/s by number of nodes."""
    rows = []
    for points in _series(scaling.points):
        first = points[0]
        by_count = {point.nodes: point for point in points}
        cells = [
            f"{by_count[count].efficiency:.1%}, {by_count[count].tokens_per_second:,.1f}/s" if count in by_count else ""
            for count in COUNTS
        ]
        rows.append([first.topology, first.workload, first.mode, _ms(first.compute_time_ns), *cells])
    columns = ["topology", "workload", "scaling", "compute ms", "1 node", *(f"{count} nodes" for count in COUNTS[1:])]
    return Table("", columns, rows, left=3)


def crossings(scaling: Scaling) -> Table:
    """The compute time of a token on one node at which each wanted efficiency comes out."""
    found: dict[tuple[str, str, int], list[Crossing]] = {}
    for one in scaling.crossings:
        found.setdefault((one.topology, one.workload, one.nodes), []).append(one)
    rows = [
        [topology, workload, str(nodes), *(_crossing(one) for one in ones)]
        for (topology, workload, nodes), ones in found.items()
    ]
    return Table("", ["topology", "workload", "nodes", *(f"{wanted:.0%} at ms" for wanted in WANTED)], rows, left=2)


def verdict(scaling: Scaling) -> list[str]:
    """In words: where the wanted efficiencies come out, and whether the settings for it make sense."""
    low, high = (f"{bound / 1e6:g}" for bound in SENSIBLE_NS)
    bounds = f"{low} to {high} ms, 3e9 parameters at 4 bits to 405e9 at 16 bits read at 819 GB/s"
    lines = []
    for wanted in WANTED:
        ones = [one for one in scaling.crossings if one.wanted == wanted]
        sensible = [one for one in ones if one.sensible]
        if sensible:
            where = "; ".join(f"{one.topology} ({one.nodes}) at {_ms(one.compute_time_ns)} ms" for one in sensible)
            lines.append(f"{wanted:.0%} comes out for a token that one node computes for: {where}")
        else:
            lines.append(f"{wanted:.0%} comes out for no sensible compute time of a token ({bounds})")
        lines += [
            f"  {one.topology} ({one.nodes}): only at {_ms(one.compute_time_ns)} ms, which is not sensible ({bounds})"
            for one in ones
            if sensible and not one.sensible
        ]
    return lines


def draw_scaling(scaling: Scaling, file: Path) -> None:
    """Lines of efficiency over nodes, one for each topology and compute time, strong and weak apart.

    Raises UsageError where the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, mode in zip(panels, ("strong", "weak"), strict=True):
        for points in _series(scaling.points):
            if points[0].mode == mode:
                axes.plot(
                    [point.nodes for point in points],
                    [100 * point.efficiency for point in points],
                    marker="o",
                    label=f"{points[0].topology}, {points[0].workload}, {_ms(points[0].compute_time_ns)} ms",
                )
        for wanted in WANTED:
            axes.axhline(100 * wanted, color="#999999", linewidth=0.8, linestyle=":")
        axes.set_xscale("log", base=2)
        axes.set_xticks(COUNTS, [str(count) for count in COUNTS])
        axes.set_ylim(0, 105)
        axes.set_xlabel("nodes")
        axes.set_title(f"{mode} scaling", loc="left", fontsize=10)
        bare(axes)
    panels[0].set_ylabel("scaling efficiency in %")
    panels[1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    save(figure, file)


def _series(points: Sequence[Point]) -> list[list[Point]]:
    """Points that differ in the number of nodes alone, together."""
    found: dict[tuple[str, str, str, int], list[Point]] = {}
    for point in points:
        found.setdefault((point.topology, point.workload, point.mode, point.compute_time_ns), []).append(point)
    return list(found.values())


def _crossing(one: Crossing) -> str:
    return _ms(one.compute_time_ns) + ("" if one.sensible else " (not sensible)")


def _ms(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e6:,.3g}"
