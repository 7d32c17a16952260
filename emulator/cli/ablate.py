"""The command `ablate`: a protocol taken apart, step by step."""

from pathlib import Path
from typing import Any

import click

from emulator.cli import options, output
from emulator.errors import FidelityError


@click.command(epilog="Example: emu ablate --plot waterfall.png")
@click.argument("topology", default="mesh4-tb5-rdma", metavar="[TOPOLOGY]")
@click.option("--protocol", default="tcp-documents", show_default=True, help="Where to begin: a name or a file.")
@click.option("--tokens", type=click.IntRange(1), default=50, show_default=True, help="Tokens to measure at each step.")
@options.place
@options.seed
@options.limit
@options.written_file("--plot", endings=(".png", ".svg", ".pdf"), help="Draw the waterfall here.")
@options.as_json
def ablate(topology: str, protocol: str, plot: Path | None, as_json: bool, **wishes: Any) -> None:
    """Take a protocol apart: from TCP to RDMA over the cables of TOPOLOGY (mesh4-tb5-rdma) step by step, each measured
    in sequence and by itself."""
    from emulator.place.choose import choose
    from emulator.report import waterfall
    from emulator.study.ablate import ablate as measure

    with output.progress() as progress:
        found = measure(
            topology,
            choose(wishes["kernel"], wishes["clock"]),
            protocol_name=protocol,
            tokens=wishes["tokens"],
            seed=wishes["seed"],
            memory=wishes["memory"],
            limit_s=wishes["limit"],
            progress=progress,
        )
    if plot:
        waterfall.draw(found, plot)
    if as_json:
        output.print_json(found)
    else:
        for title, columns, rows in waterfall.tables(found):
            output.table(title, columns, rows)
            click.echo()
        for note in found.notes:
            click.echo(f"- {note}")
        if plot:
            click.echo(f"written: {plot}")
    for warning in found.warnings:
        output.warn(warning)
    if not found.fidelity_ok:
        raise FidelityError("the host was overloaded during a run: do not trust these figures")
