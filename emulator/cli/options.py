"""Options that several commands share, each written once."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
pace = click.option(
    "--pace", is_flag=True, help="Let the guest's clock keep real time's pace, for servers that stand and wait."
)


class Number(click.FloatRange):
    """A number within bounds; infinity and not-a-number are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no number to count with.", param, ctx)
        return number


cpu_speed = click.option(
    "--cpu-speed",
    type=Number(0.001, 1000),
    metavar="X",
    help="Charge the computing of real programs at X times this host's speed (virtual clock only).",
)


def written_file(*names: str, help: str, endings: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """An option that names a file which the command will write: refused before the run, not after it."""

    def check(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
        if path and not (path.parent.is_dir() and os.access(path if path.exists() else path.parent, os.W_OK)):
            raise click.BadParameter(f"{path} cannot be written; name a file in a directory that can be")
        if path and endings and path.suffix not in endings:
            raise click.BadParameter(f"{path} has no known ending; name it {', '.join(endings)}")
        return path

    return click.option(*names, type=click.Path(path_type=Path, dir_okay=False), callback=check, help=help)


ideal = click.option("--ideal", is_flag=True, help="Leave out jitter, loss, duplication and reordering.")
limit = click.option(
    "--limit",
    type=Number(0, 1_000_000),
    callback=lambda _context, _option, seconds: max(seconds, 1.0) if seconds else 0.0,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up when virtual time has stood still for so long, 1 at the least; 0: never.",
)


def port_limits(command: Command) -> Command:
    """--ignore-ports and --force."""
    for option in (
        click.option("--force", is_flag=True, help="Allow more than 256 nodes or 10,000 cables."),
        click.option("--ignore-ports", is_flag=True, help="Allow more cables than a node's driver lets it use."),
    ):
        command = option(command)
    return command


def place(command: Command) -> Command:
    """--kernel, --clock and --memory."""
    for option in (
        click.option("--memory", default="1GiB", show_default=True, help="Memory of the guest kernel."),
        click.option(
            "--clock",
            type=click.Choice(["virtual", "real"]),
            help="Virtual: exact and repeatable (guest only). [default: virtual in the guest, real on the host]",
        ),
        click.option(
            "--kernel",
            type=click.Choice(["auto", "host", "guest"]),
            default="auto",
            show_default=True,
            help="Where the cluster stands.",
        ),
    ):
        command = option(command)
    return command


def seed(command: Command) -> Command:
    """--seed."""
    return click.option(
        "--seed", type=click.IntRange(0), default=1, show_default=True, help="Of jitter and loss: same seed, same run."
    )(command)


def run(command: Command) -> Command:
    """What a run of a workload takes: which one, on which cables, where and for how long."""
    for option in (limit, cpu_speed, seed, port_limits, place, ideal, workload_choice):
        command = option(command)
    return command


def workload_choice(command: Command) -> Command:
    """--workload, --tokens and --set."""
    for option in (
        click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a value of the workload."),
        click.option("--tokens", type=click.IntRange(1), help="Tokens to measure."),
        click.option("--workload", default="token-exchange", show_default=True, help="A name or a file."),
    ):
        command = option(command)
    return command
