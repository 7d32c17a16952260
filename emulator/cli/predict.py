"""`emu predict`: what an engine would reach with a model on a topology."""

from typing import Any

import click

from emulator.cli import options, output


@click.command(
    epilog="Example: emu predict exo-tensor qwen3-235b mesh4-tb5-rdma-measured --fit exo-qwen3-235b-1 --fit 2=26.2"
)
@click.argument("engine", metavar="ENGINE")
@click.argument("model", metavar="MODEL")
@click.argument("topology", metavar="TOPOLOGY")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Only the first N nodes. [default: all]")
@click.option(
    "--context", type=click.IntRange(0), default=0, show_default=True, help="Tokens before the one predicted."
)
@click.option(
    "--fit",
    "fits",
    multiple=True,
    metavar="RESULT",
    help="Fit on a published point, by id or as NODES=TOKENS_PER_SECOND: with one node the efficiency, with more the "
    "one free cost. May be given several times.",
)
@click.option(
    "--efficiency",
    type=click.FloatRange(0, 1, min_open=True),
    help="Share of memory bandwidth. [default: fitted, or 0.55]",
)
@click.option("--free-cost", metavar="DURATION", help="Per all-reduce or message. [default: fitted, or 0ns]")
@click.option(
    "--cost-per",
    type=click.Choice(["all-reduce", "message"]),
    help="What the free cost is per. [default: all-reduce for tensor parallelism, else message]",
)
@click.option("--jitter", is_flag=True, help="Keep jitter, loss and reordering of the cables.")
@click.option(
    "--list",
    "listed",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda *given: _list(*given),
    help="List engines and published points.",
)
@options.limit
@options.as_json
def predict(
    engine: str,
    model: str,
    topology: str,
    nodes: int | None,
    context: int,
    fits: tuple[str, ...],
    efficiency: float | None,
    free_cost: str | None,
    cost_per: Any,
    jitter: bool,
    limit: float,
    as_json: bool,
) -> None:
    """Predict tokens per second of ENGINE with MODEL on TOPOLOGY, by running what the engine sends, on the virtual
    clock.

    Compute time comes from the bytes of weights that a token reads, and from the nodes' memory bandwidth."""
    from emulator.errors import UsageError
    from emulator.place.choose import choose
    from emulator.spec.units import DURATION
    from emulator.study import predict as study
    from emulator.study.engine import find
    from emulator.study.published import Point

    find(engine)
    try:
        cost = DURATION.parse(free_cost) if free_cost is not None else None
    except ValueError as error:
        raise UsageError(f"--free-cost: {error}") from None
    points = [Point.parse(text, engine, model, topology) for text in fits]
    with (
        output.progress() as progress,
        study.Laboratory(choose("guest", "virtual"), progress, ideal=not jitter, limit_s=limit) as lab,
    ):
        found = study.predict(
            lab, study.Ask(engine, model, topology, nodes, context, efficiency, cost, cost_per), points
        )
    if as_json:
        output.print_json(found)
    else:
        _show(found)


def _show(found: Any) -> None:
    ms = 1e6
    click.echo(f"{found.engine} with {found.model} on {found.nodes} nodes of {found.topology}")
    click.echo(f"{found.tokens_per_second:,.2f} tokens/s")
    click.echo()
    rows = [
        ["token", f"{found.token_time_ns / ms:,.3f}"],
        ["compute (modelled)", f"{found.compute_time_ns / ms:,.3f}"],
        ["communication (measured)", f"{found.communication_time_ns / ms:,.3f}"],
        [f"free cost per {found.free_cost_per}", f"{found.free_cost_ns / ms:,.6f}"],
    ]
    output.table("", ["", "ms"], rows)
    click.echo()
    traffic = [[name, f"{each.sent:,}", f"{each.received:,}"] for name, each in found.bytes_per_token.items()]
    output.table("", ["node", "sent B a token", "received"], traffic)
    if found.fitted:
        click.echo()
        fitted = [
            [
                one.point,
                one.figure,
                f"{one.published_tokens_per_second:.2f}",
                f"{one.tokens_per_second:.2f}",
                f"{one.error:+.1%}",
            ]
            for one in found.fitted
        ]
        output.table("", ["fitted on", "fits", "published tokens/s", "with the fit", "residual"], fitted, left=2)
    click.echo()
    click.echo("assumed:")
    for line in found.assumptions:
        click.echo(f"  {line}")


def _list(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from emulator.study.engine import ENGINES
    from emulator.study.published import published

    output.table("", ["engine", "what it sends"], [[name, one.description] for name, one in ENGINES.items()], left=2)
    click.echo()
    rows = [[one.id, one.engine, one.model, str(one.nodes), f"{1e9 / one.token_ns:.2f}"] for one in published()]
    output.table("", ["published point", "engine", "model", "nodes", "tokens/s"], rows, left=3)
    context.exit()
