"""Commands that change the cables of a standing cluster: `link`, `partition`, `heal`."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from emulator.cli import options, output
from emulator.cli.cluster import the_only_one
from emulator.errors import UsageError
from emulator.plan import change as changed
from emulator.plan.change import cables_between
from emulator.plan.model import Cable, End, Plan
from emulator.spec.units import DURATION, RATE, Percentage

Command = TypeVar("Command", bound=Callable[..., Any])

cluster_option = click.option("--cluster", help="The cluster, where more than one stands.")
plane_option = click.option("--plane", help="The plane of the cable. [default: all that join the two]")


class Value(click.ParamType):  # type: ignore[type-arg]
    """A value with its unit, written as in a topology's file."""

    def __init__(self, name: str, parse: Callable[[object], Any]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


_DURATION, _RATE, _SHARE = (
    Value("duration", DURATION.parse),
    Value("rate", RATE.parse),
    Value("share", Percentage.parse),
)


@click.group()
def link() -> None:
    """Look at the cables of a standing cluster, change their values, pull them and put them back."""


@link.command(epilog="Example: emu link show lab --json")
@click.argument("name", required=False)
@options.as_json
def show(name: str | None, as_json: bool) -> None:
    """Show each direction of each cable of the cluster NAME as it is now."""
    from emulator import state

    record = state.read(name or the_only_one())
    plan = record.plan
    ways = [way for cable in plan.cables for way in ((cable, cable.a, cable.b), (cable, cable.b, cable.a))]
    if as_json:
        output.print_json(
            {
                "name": record.name,
                "changes": changed.changes(plan, record.built),
                "directions": [_direction(plan, *way) for way in ways],
            }
        )
        return
    columns = ["plane", "from", "to", "state", "delay", "jitter", "rate", "loss"]
    rows = []
    for cable, end, far in ways:
        held = end.egress
        figures = [DURATION.format(held.delay_ns), DURATION.format(held.jitter_ns), RATE.format(held.rate_bps)]
        up = "down" if cable.name in plan.down else "up"
        rows.append([cable.plane, end.node, far.node, up, *figures, Percentage.format(held.loss)])
    output.table("", columns, rows, left=4)
    for one in changed.changes(plan, record.built):
        click.echo(one)


@link.command("set", epilog="Example: emu link set n0 n1 --delay 200us --loss 1%")
@click.argument("a")
@click.argument("b")
@plane_option
@click.option("--one-way", is_flag=True, help="Only what A sends to B.")
@click.option("--delay", "delay_ns", type=_DURATION, help="One way, for example 50us.")
@click.option("--jitter", "jitter_ns", type=_DURATION, help="To either side of the delay, for example 5us.")
@click.option("--rate", "rate_bps", type=_RATE, help="Of one direction, for example 10Gbit/s.")
@click.option("--loss", type=_SHARE, help="Share of packets that are lost, for example 1%.")
@click.option("--duplicate", type=_SHARE, help="Share of packets that come twice.")
@click.option("--reorder", type=_SHARE, help="Share of packets that are sent at once, past those that wait.")
@click.option("--reset", is_flag=True, help="Back to the values of the topology, before the others are set.")
@cluster_option
def set_(
    a: str, b: str, plane: str | None, one_way: bool, reset: bool, cluster: str | None, **values: int | float | None
) -> None:
    """Change the values of the cable from A to B that are named; all others stay as they are.

    Packets that are on the way keep the delay they got when they were sent.
    """
    named = {key: value for key, value in values.items() if value is not None}
    if not named and not reset:
        raise UsageError("nothing is to be changed; give --delay, --jitter, --rate, --loss, ... or --reset")
    sender = a if one_way else None

    def wish(plan: Plan, built: Plan) -> Plan:
        if reset:
            plan = changed.as_built(plan, built, cables_between(plan, a, b, plane), sender)
        return changed.with_values(plan, cables_between(plan, a, b, plane), named, sender)

    _change(cluster, wish)


@link.command(epilog="Example: emu link down n0 n1")
@click.argument("a")
@click.argument("b")
@plane_option
@cluster_option
def down(a: str, b: str, plane: str | None, cluster: str | None) -> None:
    """Pull the cable between A and B: what is on it is lost, and traffic takes another way where there is one."""

    def wish(plan: Plan, built: Plan) -> Plan:
        names = {cable.name for cable in cables_between(plan, a, b, plane)}
        return changed.with_down(plan, built, {*plan.down, *names})

    _change(cluster, wish)


@link.command(epilog="Example: emu link up n0 n1")
@click.argument("a")
@click.argument("b")
@plane_option
@cluster_option
def up(a: str, b: str, plane: str | None, cluster: str | None) -> None:
    """Put the cable between A and B back: traffic comes back to it."""

    def wish(plan: Plan, built: Plan) -> Plan:
        names = {cable.name for cable in cables_between(plan, a, b, plane)}
        return changed.with_down(plan, built, set(plan.down) - names)

    _change(cluster, wish)


@click.command(epilog="Example: emu partition n0,n1 n2,n3")
@click.argument("groups", metavar="NODE,... NODE,...", nargs=-1, required=True)
@cluster_option
def partition(groups: tuple[str, ...], cluster: str | None) -> None:
    """Pull all cables between the groups, so that no node of one reaches a node of another. `emu heal` undoes it."""
    if len(groups) < 2:
        raise UsageError("a partition has two sides or more; write: emu partition n0,n1 n2,n3")
    sides = [[name for name in group.split(",") if name] for group in groups]
    _change(cluster, lambda plan, built: changed.parted(plan, built, sides))


@click.command(epilog="Example: emu heal")
@cluster_option
def heal(cluster: str | None) -> None:
    """Put all cables back that are down, whatever took them down. Values of cables stay as they are."""
    _change(cluster, lambda plan, built: changed.with_down(plan, built, ()))


def _change(cluster: str | None, wish: Callable[[Plan, Plan], Plan]) -> None:
    from emulator.place.change import change

    record = change(cluster or the_only_one(), wish)
    found = changed.changes(record.plan, record.built)
    for one in found or ["as built"]:
        click.echo(f"{record.name}: {one}")


def _direction(plan: Plan, cable: Cable, end: End, far: End) -> dict[str, Any]:
    return {
        "cable": cable.name,
        "plane": cable.plane,
        "sender": end.node,
        "receiver": far.node,
        "up": cable.name not in plan.down,
        "shaping": end.egress,
    }
