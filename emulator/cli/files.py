"""Commands about files: `topology`, `profile`, `workload`, `schema`."""

from pathlib import Path

import click

from emulator.cli import options, output
from emulator.cli.topology_view import plan_json, show_plan
from emulator.spec.shipped import resolve, shipped


@click.group(epilog="Example: emu topology show mesh4-tb5-rdma")
def topology() -> None:
    """Look at topology files."""


@topology.command("list", epilog="Example: emu topology list")
@options.as_json
def topology_list(as_json: bool) -> None:
    """List the shipped topologies."""
    from emulator.spec.load import load
    from emulator.spec.topology import Topology

    found = [load(path, Topology) for path in shipped("topology").values()]
    if as_json:
        output.print_json([{"name": t.name, "nodes": len(t.members), "description": t.description} for t in found])
        return
    output.table(
        "", ["topology", "nodes", "what it is"], [[t.name, str(len(t.members)), t.description] for t in found], left=3
    )


@topology.command("show", epilog="Example: emu topology show dual-plane-8 --json")
@click.argument("file")
@options.port_limits
@options.as_json
def topology_show(file: str, ignore_ports: bool, force: bool, as_json: bool) -> None:
    """Show the nodes, cables and ways of a topology: what `emu up` would build."""
    from emulator.study.prepare import read_plan

    plan = read_plan(file, cluster=Path(file).stem[:63], ignore_ports=ignore_ports, force=force)
    if as_json:
        output.print_json(plan_json(plan))
    else:
        show_plan(plan)


@topology.command("validate", epilog="Example: emu topology validate my-cluster.yaml")
@click.argument("files", nargs=-1, required=True)
@options.port_limits
def topology_validate(files: tuple[str, ...], ignore_ports: bool, force: bool) -> None:
    """Check topology files and the profiles they name; say what is wrong, where, and what to write."""
    from emulator.study.prepare import read_plan

    for file in files:
        plan = read_plan(file, cluster="validate", ignore_ports=ignore_ports, force=force)
        click.echo(f"{file}: {len(plan.computing)} nodes, {len(plan.cables)} cables, no fault found")


@click.group(epilog="Example: emu profile list")
def profile() -> None:
    """Look at profiles: interconnects under a protocol."""


@profile.command("list", epilog="Example: emu profile list --json")
@options.as_json
def profile_list(as_json: bool) -> None:
    """List the shipped profiles."""
    from emulator.spec.profile import load_profile
    from emulator.spec.units import DURATION, RATE

    found = [load_profile(name) for name in shipped("profile")]
    if as_json:
        output.print_json([one.model_dump(mode="json") for one in found])
        return
    rows = [
        [
            one.name,
            one.interconnect,
            one.protocol,
            one.maturity or "",
            DURATION.format(one.delay_ns),
            f"±{DURATION.format(one.jitter_ns)}" if one.jitter_ns else "",
            RATE.format(one.rate),
            f"{one.cost_factor:g}" if one.cost_factor else "",
        ]
        for one in found
    ]
    columns = ["profile", "interconnect", "protocol", "maturity", "delay", "jitter", "rate", "cost factor"]
    output.table("", columns, rows, left=4)


@profile.command("show", epilog="Example: emu profile show thunderbolt5-rdma")
@click.argument("name")
@options.as_json
def profile_show(name: str, as_json: bool) -> None:
    """Show a profile: its file, or its values with --json."""
    from emulator.spec.profile import load_profile

    found = load_profile(name)
    if as_json:
        output.print_json(found.model_dump(mode="json"))
    else:
        click.echo(resolve("profile", name).read_text().rstrip())


@click.group(epilog="Example: emu workload list")
def workload() -> None:
    """Look at workloads: what `emu bench` runs."""


@workload.command("list", epilog="Example: emu workload list")
@options.as_json
def workload_list(as_json: bool) -> None:
    """List the shipped workloads."""
    from emulator.spec.load import load
    from emulator.spec.workload import Workload

    found = [load(path, Workload) for path in shipped("workload").values()]
    if as_json:
        output.print_json([one.model_dump(mode="json") for one in found])
        return
    output.table("", ["workload", "pattern", "what it is"], [[o.name, o.pattern, o.description] for o in found], left=3)


@workload.command("show", epilog="Example: emu workload show token-exchange")
@click.argument("name")
@options.as_json
def workload_show(name: str, as_json: bool) -> None:
    """Show a workload: its file, or its values with --json."""
    from emulator.spec.load import load
    from emulator.spec.workload import Workload

    path = resolve("workload", name)
    found = load(path, Workload)
    if as_json:
        output.print_json(found.model_dump(mode="json"))
    else:
        click.echo(path.read_text().rstrip())


@click.command(epilog="Example: emu schema topology > topology.schema.json")
@click.argument("kind", type=click.Choice(["topology", "profile", "workload", "model", "protocol", "result"]))
def schema(kind: str) -> None:
    """Print the JSON Schema of a kind of file."""
    from emulator.spec.schema import schema as schema_of

    output.print_json(schema_of(kind))  # type: ignore[arg-type]
