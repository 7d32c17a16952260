"""`emu capture` and `emu top`: what goes over the cables of a standing cluster."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from emulator.cli import options, output
from emulator.cli.cluster import the_only_one
from emulator.errors import UsageError


@click.command(epilog="Example: emu capture n0 -w n0.pcapng -- ping -c 3 n1")
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("-w", "--write", "file", type=click.Path(path_type=Path), required=True, help="A new pcapng file.")
@click.option("--cable", nargs=2, metavar="A B", help="Only the cables that join these two, one of them NODE.")
@click.option("--plane", help="Only cables of this plane.")
@click.option("--count", type=click.IntRange(1), default=None, help="End after so many frames.")
@click.option("--seconds", type=options.Number(0.001), default=None, help="End after so long, by the cluster's clock.")
@click.option("--snaplen", type=click.IntRange(64, 65535), default=65535, show_default=True, help="Bytes of a frame.")
@click.option("--cluster", help="The cluster, where more than one stands.")
@options.limit
def capture(
    node: str,
    command: tuple[str, ...],
    file: Path,
    cable: tuple[str, str] | None,
    plane: str | None,
    count: int | None,
    seconds: float | None,
    snaplen: int,
    cluster: str | None,
    limit: float,
) -> int:
    """Capture what crosses the cables of NODE into a file for Wireshark, until COMMAND, run in NODE, has ended, or what
    --count or --seconds say, or Ctrl-C.

    Time stamps are of the cluster's clock, in nanoseconds. What NODE sends is stamped when it has crossed its cable.
    """
    from emulator.fabric.capture import Wish
    from emulator.place.cluster import Order
    from emulator.place.life import attach

    standing = attach(cluster or the_only_one())
    plan = standing.record.plan
    if node not in [one.name for one in plan.nodes]:
        names = ", ".join(one.name for one in plan.nodes)
        raise UsageError(f"{standing.record.name!r} has no node {node!r}; it has {names}")
    chosen = [one for one in plan.cables if plane in (None, one.plane)]
    if cable:
        chosen = [one for one in chosen if {one.a.node, one.b.node} == set(cable)]
    interfaces = [end.interface for one in chosen for end in (one.a, one.b) if end.node == node]
    if not interfaces:
        raise UsageError(f"no such cable ends at {node}; see: emu link show")
    wish = Wish(interfaces=interfaces, count=count or 0, seconds=seconds or 0.0, snaplen=snaplen, command=list(command))
    try:
        # A file of its own, that nobody has put a link in place of.
        target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; name a file that is not there yet") from None
    sys.stdout.flush()
    os.dup2(target, 1)
    argv = (sys.executable, "-m", "emulator.fabric.capture", msgspec.json.encode(wish).decode())
    return standing.exec(Order(node=node, argv=argv, limit_s=limit))


@click.command(epilog="Example: emu top lab --once")
@click.argument("name", required=False)
@click.option("--once", is_flag=True, help="Print what cables have carried so far, and end.")
@click.option(
    "--interval", type=options.Number(0.1, 3600), default=1.0, show_default=True, help="Seconds between looks."
)
@options.as_json
def top(name: str | None, once: bool, interval: float, as_json: bool) -> None:
    """Show what each direction of each cable of the cluster NAME has carried, most used first; live until Ctrl-C."""
    from rich.live import Live
    from rich.table import Table

    from emulator.place.life import attach

    standing = attach(name or the_only_one())
    plan = standing.record.plan
    columns = ("from", "to", "plane", "rate", "frames", "MB", "new MB", "queued", "drops")
    before: dict[tuple[str, str], int] = {}

    def look() -> list[tuple[Any, ...]]:
        """One row for each direction; what is new since the last look first, then by all it has carried."""
        rows = []
        for cable, found in zip(plan.cables, standing.inspect(), strict=True):
            for way in (found.a_to_b, found.b_to_a):
                key = (found.name, way.sender)
                new = way.traffic.bytes - before.get(key, 0)
                before[key] = way.traffic.bytes
                rows.append((new, way, cable.plane))
        return sorted(rows, key=lambda row: (row[0], row[1].traffic.bytes), reverse=True)

    def drawn() -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for place, column in enumerate(columns):
            table.add_column(column, justify="left" if place < 3 else "right")
        for new, way, plane in look():
            traffic = way.traffic
            table.add_row(
                way.sender,
                way.receiver,
                plane,
                f"{way.held.rate_bps / 1e9:g}Gbit/s",
                f"{traffic.packets:,}",
                f"{traffic.bytes / 1e6:,.3f}",
                f"{new / 1e6:,.3f}",
                str(traffic.queued_packets),
                str(traffic.drops + traffic.receive_drops),
            )
        return table

    if as_json:
        if not once:
            raise UsageError("--json prints one look; give --once, too")
        output.print_json(standing.inspect())
        return
    if once:
        output.console().print(drawn())
        return
    if not sys.stdout.isatty():
        raise UsageError("standard output is not a terminal; give --once")
    with Live(drawn(), console=output.console(), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(interval)
            live.update(drawn(), refresh=True)
