"""Commands that measure: `bench`, `compare`."""

from pathlib import Path
from typing import Any

import click

from emulator import state
from emulator.cli import options, output
from emulator.errors import FidelityError, UsageError
from emulator.report import tables
from emulator.workload.result import Result


@click.command(epilog="Example: emu bench mesh4-tb5-rdma --workload all-reduce-mesh --tokens 100")
@click.argument("target", metavar="TOPOLOGY|NAME")
@options.workload_choice
@options.ideal
@options.place
@options.port_limits
@options.seed
@options.cpu_speed
@options.limit
@options.written_file("-o", "--output", "file", help="Write the result's JSON here, too.")
@options.as_json
def bench(target: str, file: Path | None, as_json: bool, kernel: Any, clock: Any, **wishes: Any) -> None:
    """Run a workload on the cluster NAME if one stands, else on one made of TOPOLOGY for this run, and print what a
    token costs."""
    from emulator.place.choose import choose
    from emulator.study.bench import bench_cluster, bench_topology

    wish = _wish(wishes)
    with output.progress() as progress:
        if _stands(target):
            if kernel != "auto" or clock:
                raise UsageError(
                    f"cluster {target!r} stands where it is; leave out --kernel and --clock, or give a file"
                )
            result = bench_cluster(target, wish, progress)
        else:
            result = bench_topology(target, choose(kernel, clock), wish, progress)
    if file:
        write(file, result)
    if as_json:
        output.print_json(result)
    else:
        for line in tables.summary(result):
            click.echo(line)
        for one in (tables.times(result), tables.cables(result)):
            click.echo()
            output.table(*one[:3], left=one.left)
    for warning in result.fidelity.warnings:
        output.warn(warning)
    if not result.fidelity.ok:
        raise FidelityError("the host was overloaded during the run: do not trust these figures")


@click.command(epilog="Example: emu compare mesh4-tb5-tcp mesh4-tb5-rdma dual-plane-8=aggregate --plot compare.png")
@click.argument("targets", metavar="TOPOLOGY[=WORKLOAD]...", nargs=-1, required=True)
@options.workload_choice
@options.ideal
@options.place
@options.port_limits
@options.seed
@options.cpu_speed
@options.limit
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
    """Run several topologies, each under its own workload or the same one, and show them side by side."""
    from emulator.place.choose import choose
    from emulator.study.bench import bench_topology

    wish = _wish(wishes)
    choice = choose(kernel, clock)
    results = []
    with output.progress() as progress:
        for target in targets:
            topology, _, workload = target.partition("=")
            results.append(
                bench_topology(topology, choice, wish._replace(workload=workload or wish.workload), progress)
            )
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
