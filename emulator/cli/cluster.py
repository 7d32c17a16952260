"""Commands about standing clusters: `up`, `down`, `ps`, `exec`, `shell`."""

import os
import sys
import time
from typing import Any

import click

from emulator import state
from emulator.cli import options, output
from emulator.errors import ClusterError, StateError, UsageError
from emulator.plan.change import changes
from emulator.state import Record


@click.command(epilog="Example: sudo emu up topologies/mesh4-tb5-rdma.yaml --name lab")
@click.argument("topology")
@click.option("--name", help="The cluster's name. [default: the topology's]")
@click.option("--dry-run", is_flag=True, help="Print what would be built, and build nothing.")
@options.place
@options.port_limits
@options.seed
@options.ideal
@options.pace
@options.cpu_speed
@options.as_json
def up(
    topology: str,
    name: str | None,
    dry_run: bool,
    kernel: Any,
    clock: Any,
    memory: str,
    ignore_ports: bool,
    force: bool,
    seed: int,
    ideal: bool,
    pace: bool,
    cpu_speed: float | None,
    as_json: bool,
) -> None:
    """Build the cluster of TOPOLOGY (a file, or a shipped one's name) and leave it standing."""
    from emulator.cli.topology_view import plan_json, show_plan
    from emulator.study.prepare import read_plan

    plan = read_plan(
        topology, cluster=name, ignore_ports=ignore_ports, force=force, seed=seed, cpu_speed=cpu_speed, ideal=ideal
    )
    state.cluster_directory(plan.cluster)
    if dry_run:
        if as_json:
            output.print_json(plan_json(plan))
        else:
            show_plan(plan)
        return
    from emulator.place.choose import choose
    from emulator.place.life import up as bring_up

    choice = choose(kernel, clock)
    started = time.monotonic()
    with output.progress() as progress:
        cluster = bring_up(
            plan, choice, file=topology, memory=memory, seed=seed, ideal=ideal, pace=pace, progress=progress
        )
    cluster.close()
    if as_json:
        output.print_json(_summary(cluster.record))
        return
    click.echo(
        f"{plan.cluster} is up: {len(plan.computing)} nodes, {len(plan.cables)} cables, "
        f"in {time.monotonic() - started:.1f} s"
    )
    click.echo(f"{choice.place} kernel, {choice.clock} clock: {choice.why}")
    first = plan.computing[0].name
    other = plan.computing[-1].name
    click.echo(f"try: emu exec {first} -- ping -c 3 {other}    then: emu down {plan.cluster}")


@click.command(epilog="Example: emu down lab")
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Take down all clusters of this user.")
def down(name: str | None, everything: bool) -> None:
    """Take a cluster down, with everything that was made for it and nothing else."""
    from emulator.place.life import down as take_down

    if everything and name:
        raise UsageError("give a name or --all, not both")
    found = state.names()
    if everything:
        chosen = found
    elif name:
        chosen = [name]
    elif len(found) == 1:
        chosen = found
    elif found:
        raise UsageError(f"which one? standing: {', '.join(found)}; write: emu down NAME, or emu down --all")
    else:
        raise ClusterError("no cluster stands: nothing to take down")
    for one in chosen:
        take_down(one)
        click.echo(f"{one} is down")
    if everything:
        state.sweep()


@click.command(epilog="Example: emu ps --json")
@options.as_json
def ps(as_json: bool) -> None:
    """List the clusters of this user."""
    summaries = []
    for name in state.names():
        try:
            summaries.append(_summary(state.read(name)))
        except ClusterError:
            # `up` was killed before it wrote what it was about to build.
            summaries.append({"name": name, "state": "half-made"})
        except StateError:
            summaries.append({"name": name, "state": "damaged"})
    if as_json:
        output.print_json(summaries)
        return
    if not summaries:
        click.echo("no cluster stands; build one with: emu up TOPOLOGY")
        return
    columns = ["name", "state", "topology", "kernel", "clock", "nodes", "cables", "age"]
    keys = ["name", "state", "topology", "kernel", "clock", "nodes", "cables", "age_seconds"]
    rows = [[str(summary.get(key, "")) for key in keys] for summary in summaries]
    for row in rows:
        row[-1] = _age(float(row[-1])) if row[-1] else ""
    output.table("", columns, rows, left=5)
    for summary in summaries:
        for one in summary.get("changes", []):
            click.echo(f"{summary['name']}: {one}")


@click.command("exec", context_settings={"ignore_unknown_options": True}, epilog="Example: emu exec n0 -- ping -c 3 n1")
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
@click.option("--cluster", help="The cluster, where more than one stands.")
@click.option("-t", "--terminal", is_flag=True, help="Give it a terminal of its own, as `emu shell` does.")
@click.option(
    "--write", "writable", multiple=True, metavar="DIRECTORY", help="Let it write here, too (guest). Repeatable."
)
@options.cpu_speed
@options.limit
def exec_(
    node: str,
    command: tuple[str, ...],
    cluster: str | None,
    terminal: bool,
    writable: tuple[str, ...],
    cpu_speed: float | None,
    limit: float,
) -> int:
    """Run COMMAND in NODE: its input, output, exit status and signals are passed through.

    In the guest it may write in the current directory, and sees the rest of the host's files as they are.
    """
    return _run_in(cluster, node, command, terminal, writable, cpu_speed, limit)


@click.command(epilog="Example: emu shell n0")
@click.argument("node")
@click.option("--cluster", help="The cluster, where more than one stands.")
@options.cpu_speed
def shell(node: str, cluster: str | None, cpu_speed: float | None) -> int:
    """Open a shell in NODE. In the guest, time keeps real time's pace meanwhile."""
    command = (os.environ.get("SHELL") or "/bin/sh",)
    return _run_in(cluster, node, command, sys.stdin.isatty(), (), cpu_speed, 0)


def _run_in(
    cluster: str | None,
    node: str,
    command: tuple[str, ...],
    terminal: bool,
    writable: tuple[str, ...],
    cpu_speed: float | None,
    limit_s: float,
) -> int:
    from emulator.place.cluster import Order
    from emulator.place.life import attach

    standing = attach(cluster or the_only_one())
    known = [one.name for one in standing.record.plan.nodes]
    if node not in known:
        raise UsageError(f"{standing.record.name!r} has no node {node!r}; it has {', '.join(known)}")
    if cpu_speed and standing.record.clock == "real":
        raise UsageError("--cpu-speed charges computing to the virtual clock, and this cluster's clock is real")
    if terminal and not sys.stdin.isatty():
        raise UsageError("standard input is not a terminal; leave out --terminal")
    order = Order(node=node, argv=command, terminal=terminal, cpu_speed=cpu_speed, writable=writable, limit_s=limit_s)
    return standing.exec(order)


def the_only_one() -> str:
    """The cluster that is meant when none is named. Raises UsageError where that is not clear."""
    found = state.names()
    if len(found) == 1:
        return found[0]
    if not found:
        raise ClusterError("no cluster stands; build one with: emu up TOPOLOGY")
    raise UsageError(f"several clusters stand ({', '.join(found)}); say which: --cluster NAME")


def _summary(record: Record) -> dict[str, Any]:
    return {
        "name": record.name,
        "state": _state(record),
        "topology": record.plan.topology,
        "file": record.topology_file,
        "kernel": record.place,
        "clock": record.clock,
        "nodes": len(record.plan.computing),
        "cables": len(record.plan.cables),
        "age_seconds": round(time.time() - record.created, 1),
        "changes": changes(record.plan, record.built),
    }


def _state(record: Record) -> str:
    from emulator.place.life import alive

    if not record.ready:
        return "half-made"
    if record.changing and alive(record):
        return "half-changed"
    return "up" if alive(record) else "dead"


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
