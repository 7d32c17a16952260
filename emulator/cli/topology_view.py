"""A plan as a person sees it: its nodes, its cables, and who reaches whom over others."""

import json
from typing import Any

import click

from emulator.cli import output
from emulator.plan.model import Cable, End, Plan, encode
from emulator.spec.units import BYTES, DURATION, RATE


def plan_json(plan: Plan) -> Any:
    """The plan as plain data."""
    return json.loads(encode(plan))


def show_plan(plan: Plan) -> None:
    """Print a plan as tables."""
    click.echo(f"{plan.topology}: {plan.description}")
    switches = [node.name for node in plan.nodes if node.kind == "switch"]
    click.echo(
        f"{len(plan.computing)} nodes, {len(plan.cables)} cables"
        + (f", switches: {', '.join(switches)}" if switches else "")
        + f", cluster {plan.cluster!r}\n"
    )
    output.table(
        "",
        ["node", "namespace", "address", "memory", "cables", "routes"],
        [
            [
                node.name,
                node.namespace,
                node.address or "(switch)",
                BYTES.format(node.memory_bytes) if node.memory_bytes else "",
                str(sum(node.name in (cable.a.node, cable.b.node) for cable in plan.cables)),
                str(len(node.routes)),
            ]
            for node in plan.nodes
        ],
        left=3,
    )
    click.echo()
    rows = [row for cable in plan.cables for row in _cable_rows(cable)]
    columns = ["cable", "from", "interface", "address", "profile", "delay", "jitter", "loss", "rate", "queue", "MTU"]
    output.table("", columns, rows, left=5)
    far = [(node.name, route) for node in plan.computing for route in node.routes if route.hops > 1]
    if far:
        click.echo()
        output.table(
            "reached over other nodes or a switch",
            ["from", "to", "first through", "cables", "delay"],
            [[name, r.node, r.gateway, str(r.hops), DURATION.format(r.delay_ns)] for name, r in far],
            left=3,
        )


def _cable_rows(cable: Cable) -> list[list[str]]:
    return [_direction(cable, cable.a, cable.name), _direction(cable, cable.b, "")]


def _direction(cable: Cable, sender: End, title: str) -> list[str]:
    shaping = sender.egress
    return [
        title,
        sender.node,
        sender.interface,
        sender.address or "(port)",
        cable.profile,
        DURATION.format(shaping.delay_ns),
        f"±{DURATION.format(shaping.jitter_ns)}" if shaping.jitter_ns else "",
        f"{shaping.loss * 100:g}%" if shaping.loss else "",
        RATE.format(shaping.rate_bps),
        str(shaping.limit_packets),
        str(cable.mtu),
    ]
