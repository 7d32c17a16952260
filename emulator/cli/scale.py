"""`emu scale`."""

from pathlib import Path
from typing import Any

import click

from emulator.cli import options, output
from emulator.errors import FidelityError, SpecError

TOPOLOGIES = (
    "mesh4-tb5-rdma",
    "mesh8-tb5-rdma",
    "mesh8-6-ports-tb5-rdma",
    "hypercube8-tb5-rdma",
    "dual-plane-8",
    "dual-plane-8-rails",
)


@click.command(epilog="Example: emu scale --topologies mesh8-tb5-rdma,dual-plane-8 --compute 45ms --plot scale.png")
@click.option(
    "--topologies",
    default=",".join(TOPOLOGIES),
    show_default=True,
    metavar="TOPOLOGY[=WORKLOAD],...",
    help="What to measure, separated by commas.",
)
@click.option("--workload", default="deepseek-v3-all-reduces", show_default=True, help="A name or a file.")
@click.option(
    "--compute",
    multiple=True,
    default=("20ms", "80ms"),
    show_default=True,
    metavar="DURATION",
    help="What one node alone computes for a token; may be given several times.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a value of the workload.")
@click.option("--tokens", type=click.IntRange(1), help="Tokens to measure in each run.")
@options.ideal
@options.place
@options.seed
@options.limit
@options.written_file("--plot", endings=(".png", ".svg", ".pdf"), help="Draw the efficiencies here.")
@options.as_json
def scale(
    topologies: str,
    compute: tuple[str, ...],
    plot: Path | None,
    as_json: bool,
    kernel: Any,
    clock: Any,
    limit: float,
    **wishes: Any,
) -> None:
    """Measure tokens/s on 1, 2, 4 and 8 nodes of each topology, and for which compute time of a token 47 % and 72 %
    scaling efficiency come out.

    Scaling efficiency is tokens/s on n nodes over n times tokens/s on one. Strong: a token's compute time is divided by
    n. Weak: n tokens go through at once in messages n times as large, and each node computes as long as one alone does
    for one token. A topology that takes more ports than its nodes may use is measured all the same, and the first table
    says that it does not fit.
    """
    from emulator.place.choose import choose
    from emulator.study.scale import Wish, check
    from emulator.study.scale import scale as measure

    wish = Wish(
        topologies=[name.strip() for name in topologies.split(",")],
        compute_ns=[_duration(text) for text in compute],
        limit_s=limit,
        **wishes,
    )
    check(wish)
    with output.progress() as progress:
        scaling = measure(wish, choose(kernel, clock), progress)
    from emulator.report import scale as report

    if plot:
        report.draw_scaling(scaling, plot)
    if as_json:
        output.print_json(scaling)
    else:
        where = f"{scaling.kernel} kernel, {scaling.clock} clock, seed {scaling.seed}"
        click.echo(f"{where}{', ideal cables' if scaling.ideal else ''}; one node has no cable: 100 % by definition")
        for shown in (report.ports(scaling), report.efficiencies(scaling), report.crossings(scaling)):
            click.echo()
            output.table(*shown[:3], left=shown.left)
        click.echo()
        for line in report.verdict(scaling):
            click.echo(line)
        if plot:
            click.echo(f"written: {plot}")
    for misfit in scaling.misfits:
        output.warn(f"{misfit.topology}, {misfit.nodes} nodes, {misfit.workload}: {misfit.why}")
    for warning in scaling.warnings:
        output.warn(warning)
    if not scaling.ok:
        raise FidelityError("the host was overloaded during a run: do not trust these figures")


def _duration(text: str) -> int:
    """Nanoseconds. Raises SpecError."""
    from emulator.spec.units import DURATION

    try:
        return DURATION.parse(text)
    except ValueError as error:
        raise SpecError(f"--compute: {error}") from None
