"""`emu verify`."""

import os
from pathlib import Path
from typing import Any

import click

from emulator import state
from emulator.cli import options, output
from emulator.errors import UsageError, VerifyError

FAULTS_SHOWN = 10
SHARE = click.FloatRange(0, 1)


@click.command(epilog="Example: emu verify mesh4-tb5-rdma --plot cables.png")
@click.argument("target", metavar="TOPOLOGY|NAME")
@click.option("--delay-tolerance", default="20ns", show_default=True, help="A delay may be off by this,")
@click.option(
    "--delay-share", type=click.FloatRange(0, 1), default=0.0002, show_default=True, help="and by this share."
)
@click.option("--rate-tolerance", type=SHARE, default=0.015, show_default=True, help="A share.")
@click.option("--short", is_flag=True, help="Delay and wiring alone, with few probes, as before each `emu bench`.")
@click.option("--all", "everything", is_flag=True, help="Show all cables, however many.")
@options.ideal
@options.place
@options.port_limits
@options.seed
@options.limit
@options.written_file("--plot", endings=(".png", ".svg", ".pdf"), help="Draw requested against achieved.")
@options.as_json
def verify(
    target: str,
    delay_tolerance: str,
    delay_share: float,
    rate_tolerance: float,
    short: bool,
    everything: bool,
    plot: Path | None,
    as_json: bool,
    kernel: Any,
    clock: Any,
    limit: float,
    **wishes: Any,
) -> None:
    """Measure every cable of the cluster NAME if one stands, else of one made of TOPOLOGY: its delay, jitter, loss,
    rate and where it leads, requested against achieved.

    Ends with its own exit code where a cable is not as requested.
    """
    from emulator.place.choose import choose
    from emulator.place.life import attach, temporary
    from emulator.report import verify as report
    from emulator.spec.units import DURATION
    from emulator.study import verify as study
    from emulator.study.prepare import read_plan

    try:
        tolerance = DURATION.parse(delay_tolerance)
    except ValueError as error:
        raise UsageError(f"--delay-tolerance: {error}") from None
    bounds = study.Bounds(delay_ns=tolerance, delay_share=delay_share, rate_share=rate_tolerance)
    ask = study.SHORT if short else study.THOROUGH
    note = ""
    with output.progress() as progress:
        if target in state.names():
            cluster = attach(target)
            expected, note = study.expected_plan(cluster)
            found = study.verify(cluster, bounds, ask, progress, limit, expected)
        else:
            plan = read_plan(
                target,
                cluster=f"verify-{os.getpid()}",
                ignore_ports=wishes["ignore_ports"],
                force=wishes["force"],
                seed=wishes["seed"],
                ideal=wishes["ideal"],
            )
            with temporary(
                plan,
                choose(kernel, clock),
                file=target,
                memory=wishes["memory"],
                seed=wishes["seed"],
                ideal=wishes["ideal"],
                progress=progress,
            ) as cluster:
                found = study.verify(cluster, bounds, ask, progress, limit)
    if plot:
        report.draw(found, plot)
    if as_json:
        output.print_json(found)
    else:
        shown = report.rows(found, everything)
        title = f"{found.topology}: {found.kernel} kernel, {found.clock} clock, {len(found.cables)} cables"
        output.table(title, report.COLUMNS, shown, left=3)
        if (left := 2 * len(found.cables) - len(shown)) > 0:
            click.echo(f"... and {left} directions more, all ok (--all shows them)")
        worst = study.worst(found)
        click.echo(
            f"furthest off: delay {worst['delay_ns']:,.0f} ns (median), rate {worst['rate_share']:.3%}, "
            f"jitter's distance {worst['jitter_distance']:.3f}"
        )
        if plot:
            click.echo(f"written: {plot}")
    for line in (note, *found.notes):
        if line:
            output.note(line)
    if not found.ok:
        faults = found.faults
        more = f"\n  and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
        bad = sum(not cable.ok for cable in found.cables)
        raise VerifyError(
            f"{bad} of {len(found.cables)} cables are not as requested:\n  " + "\n  ".join(faults[:FAULTS_SHOWN]) + more
        )
