"""Commands that measure: `bench`, `compare`."""

from pathlib import Path
from typing import Any

import click

from emulator import state
from emulator.cli import options, output
from emulator.errors import FidelityError, UsageError
from emulator.report import tables
from emulator.workload.program import Program
from emulator.workload.recording import Recording
from emulator.workload.result import Result


@click.command(epilog="Example: emu bench mesh4-tb5-rdma --workload all-reduce-mesh --tokens 100")
@click.argument("target", metavar="TOPOLOGY|NAME")
@options.run
@options.written_file("-o", "--output", "file", help="Write the result's JSON here, too.")
@click.option("--scenario", metavar="FILE", help="Change cables meanwhile: a file, or pull-cable, flap, brown-out.")
@options.written_file(
    "--scenario-plot", endings=(".png", ".svg", ".pdf"), help="Draw token time over time, the events marked."
)
@options.written_file("--trace", endings=(".json",), help="Write who computed, sent and waited, for ui.perfetto.dev.")
@options.written_file("--timeline", endings=(".png", ".svg", ".pdf"), help="Draw a token, its critical path marked.")
@click.option(
    "--token",
    type=click.IntRange(0),
    metavar="NUMBER",
    help="The token to trace and draw. [default: --trace all, --timeline the one of median time]",
)
@options.as_json
def bench(
    target: str,
    file: Path | None,
    scenario_plot: Path | None,
    trace: Path | None,
    timeline: Path | None,
    token: int | None,
    as_json: bool,
    kernel: Any,
    clock: Any,
    **wishes: Any,
) -> None:
    """Run a workload on the cluster NAME if one stands, else on one made of TOPOLOGY for this run, and print what a
    token costs."""
    from emulator.place.choose import choose
    from emulator.study.bench import bench_cluster, bench_topology

    if token is not None and not (trace or timeline):
        raise UsageError("--token says which token to trace or draw; give --trace FILE.json or --timeline FILE.png too")
    wish = _wish(wishes)
    if scenario_plot and not wish.scenario:
        raise UsageError("--scenario-plot draws the events of a scenario; give --scenario FILE too")
    runs: list[tuple[Program, Recording]] = []

    def recorded(program: Program, recording: Recording) -> None:
        runs.append((program, recording))

    with output.progress() as progress:
        if _stands(target):
            if kernel != "auto" or clock:
                raise UsageError(
                    f"cluster {target!r} stands where it is; leave out --kernel and --clock, or give a file"
                )
            result = bench_cluster(target, wish, progress, recorded)
        else:
            result = bench_topology(target, choose(kernel, clock), wish, progress, recorded)
    if file:
        write(file, result)
    ((program, recording),) = runs
    _write_timelines(program, recording, result, trace, timeline, token)
    if scenario_plot:
        from emulator.report.scenario import draw_scenario

        draw_scenario(result, program, recording, scenario_plot)
    if as_json:
        output.print_json(result)
    else:
        for line in tables.summary(result):
            click.echo(line)
        for one in (tables.times(result), tables.cables(result)):
            click.echo()
            output.table(*one[:3], left=one.left)
        if result.events:
            click.echo()
            shown = tables.events(result)
            output.table(*shown[:3], left=shown.left)
        for made in (file, scenario_plot, trace, timeline):
            if made:
                click.echo(f"written: {made}")
    for warning in result.fidelity.warnings:
        output.warn(warning)
    if not result.fidelity.ok:
        raise FidelityError("the host was overloaded during the run: do not trust these figures")


@click.command(
    epilog="Example: emu compare before.json mesh4-tb5-rdma mesh4-tb5-rdma=star@tcp-measured --plot compare.png"
)
@click.argument("targets", metavar="RESULT.json|TOPOLOGY[=WORKLOAD][@PROTOCOL]...", nargs=-1, required=True)
@options.run
@options.written_file("--plot", endings=(".png", ".svg", ".pdf"), help="Draw the comparison here.")
@options.written_file("-o", "--output", "file", help="Write the results' JSON here, too.")
@options.as_json
def compare(
    targets: tuple[str, ...],
    plot: Path | None,
    file: Path | None,
    as_json: bool,
    kernel: Any,
    clock: Any,
    **wishes: Any,
) -> None:
    """Show results side by side, with ratios to the first: saved ones, and topologies that are measured now, each under
    its own workload and protocol or the same ones.

    A file that `emu bench -o` or `--json`, or `emu compare`, wrote is a result; one that ends in .yaml or .yml is a
    topology.
    """
    from emulator.place.choose import choose
    from emulator.study.compare import compare as measure

    with output.progress() as progress:
        results = measure(targets, lambda: choose(kernel, clock), _wish(wishes), progress)
    if file:
        write(file, results)
    if plot:
        from emulator.report.plots import draw_comparison

        draw_comparison(results, plot)
    if as_json:
        output.print_json(results)
    else:
        shown = tables.comparison(results)
        output.table(*shown[:3], left=shown.left)
        for made in (plot, file):
            if made:
                click.echo(f"written: {made}")
    for result in results:
        for warning in result.fidelity.warnings:
            output.warn(f"{result.topology}, {result.workload}: {warning}")
    if not all(result.fidelity.ok for result in results):
        raise FidelityError("the host was overloaded during a run: do not trust these figures")


def _write_timelines(
    program: Program, recording: Recording, result: Result, trace: Path | None, picture: Path | None, token: int | None
) -> None:
    if not (trace or picture):
        return
    from emulator.report.timeline import draw_timeline, write_trace
    from emulator.workload.timeline import timeline, typical_token

    title = f"{result.topology}, {result.workload} ({result.clock} clock, {result.kernel} kernel)"
    if trace:
        write_trace(timeline(program, recording, token), title, trace)
    if picture:
        one = typical_token(program, recording) if token is None else token
        drawn = timeline(program, recording, one)
        time_ns = drawn.tokens[0].end_ns - drawn.tokens[0].start_ns
        draw_timeline(drawn, f"{title}: token {one}, {tables.us(time_ns)} us", picture)


def write(file: Path, value: Result | list[Result]) -> None:
    """Write results as JSON. Raises UsageError where the file cannot be written."""
    import msgspec

    try:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; name a file that can be written") from None


def _refuse_what_is_fixed(name: str) -> None:
    """Raises UsageError for options that a standing cluster would not follow."""
    context = click.get_current_context()
    for option in ("kernel", "clock", "memory", "seed", "ideal", "cpu_speed", "ignore_ports", "force"):
        if context.get_parameter_source(option) is not click.core.ParameterSource.DEFAULT:
            raise UsageError(
                f"cluster {name!r} stands as it was built; leave out --{option.replace('_', '-')}, "
                "or give a topology's file to build another one"
            )


def _stands(target: str) -> bool:
    """Whether `target` names a cluster, and not a file."""
    return "/" not in target and not target.endswith((".yaml", ".yml")) and target in state.names()


def _wish(wishes: dict[str, Any]) -> Any:
    from emulator.study.bench import Wish

    return Wish(**{"limit_s" if key == "limit" else key: value for key, value in wishes.items()})
