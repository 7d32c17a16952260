"""Commands about models: `model list`, `show`, `import`."""

from pathlib import Path

import click

from emulator.cli import options, output
from emulator.errors import UsageError
from emulator.spec.shipped import resolve, shipped


@click.group(epilog="Example: emu model show qwen3-235b")
def model() -> None:
    """Look at model cards: what `emu predict` takes."""


@model.command("list", epilog="Example: emu model list --json")
@options.as_json
def model_list(as_json: bool) -> None:
    """List the shipped models."""
    from emulator.spec.load import load
    from emulator.spec.model import Model

    found = [load(path, Model) for path in shipped("model").values()]
    if as_json:
        output.print_json([one.model_dump(mode="json") for one in found])
        return
    rows = [
        [
            one.name,
            str(one.layers),
            str(one.hidden_size),
            f"{one.experts} / {one.experts_per_token}" if one.experts else "",
            f"{one.parameters / 1e9:,.0f}",
            f"{one.active / 1e9:,.0f}",
            f"{one.weight_bytes / 1e9:,.1f}",
            f"{one.read_bytes / 1e9:,.1f}",
            f"{one.kv_bytes / 1e3:,.1f}",
        ]
        for one in found
    ]
    columns = [
        "model",
        "layers",
        "hidden",
        "experts / top",
        "parameters 1e9",
        "active",
        "weights GB",
        "read GB a token",
    ]
    output.table("", [*columns, "KV kB a token"], rows)


@model.command("show", epilog="Example: emu model show deepseek-v3 --json")
@click.argument("name")
@options.as_json
def model_show(name: str, as_json: bool) -> None:
    """Show a model card: its file, or with --json its values and the bytes that follow from them."""
    from emulator.spec.load import load
    from emulator.spec.model import Model

    path = resolve("model", name)
    found = load(path, Model)
    if as_json:
        derived = {
            "weight_bytes": found.weight_bytes,
            "read_bytes_per_token": found.read_bytes,
            "kv_bytes_per_token": found.kv_bytes,
        }
        output.print_json(found.model_dump(mode="json") | derived)
    else:
        click.echo(path.read_text().rstrip())


@model.command("compute", epilog="Example: emu model compute deepseek-v3 --nodes 4 --prompt 1024")
@click.argument("name")
@click.option("--memory-bandwidth", default="819GB/s", show_default=True, help="Of each node.")
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="That share the work evenly.")
@click.option("--efficiency", type=click.FloatRange(0.01, 1), help="Share of the bandwidth that is reached.")
@click.option("--teraflops", type=click.FloatRange(0.001), default=20.0, show_default=True, help="A node reaches.")
@click.option("--prompt", type=click.IntRange(1), default=1024, show_default=True, help="Tokens of a prompt.")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Sequences of a training step.")
@options.as_json
def model_compute(
    name: str,
    memory_bandwidth: str,
    nodes: int,
    efficiency: float | None,
    teraflops: float,
    prompt: int,
    batch: int,
    as_json: bool,
) -> None:
    """What a model computes, without any communication: a token of decode, a prompt of prefill, and the activations
    that a training step keeps with and without checkpointing."""
    from emulator.spec.load import load
    from emulator.spec.model import DECODE_EFFICIENCY, Model
    from emulator.spec.units import BANDWIDTH

    try:
        bandwidth = BANDWIDTH.parse(memory_bandwidth)
    except ValueError as error:
        raise UsageError(f"--memory-bandwidth: {error}") from None
    card = load(resolve("model", name), Model)
    reached = DECODE_EFFICIENCY if efficiency is None else efficiency
    found = {
        "decode_ns": card.decode_ns(bandwidth, efficiency=reached, context=prompt) // nodes,
        "prefill_ns": card.prefill_ns(prompt, teraflops * 1e12, bandwidth, efficiency=reached) // nodes,
        "activation_bytes": card.activation_bytes(prompt, batch),
        "activation_bytes_checkpointed": card.activation_bytes(prompt, batch, checkpointing=True),
        "recomputation_share": 1 / 3,
    }
    if as_json:
        output.print_json(found)
        return
    click.echo(f"{card.name} on {nodes} of {memory_bandwidth}, {reached:.0%} reached, {teraflops:g} TFLOPS a node")
    click.echo(f"decode, after {prompt} tokens      {found['decode_ns'] / 1e6:,.3f} ms a token")
    click.echo(f"prefill of {prompt} tokens         {found['prefill_ns'] / 1e6:,.3f} ms")
    click.echo(
        f"training, {batch} x {prompt} tokens  {found['activation_bytes'] / 1e9:,.2f} GB of activations; "
        f"{found['activation_bytes_checkpointed'] / 1e9:,.2f} GB with checkpointing, "
        f"which computes {found['recomputation_share']:.0%} more"
    )


@model.command("import", epilog="Example: emu model import config.json --name my-model > my-model.yaml")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--name", help="Of the model. [default: the name of the directory that the file is in]")
@click.option("--precision", metavar="BITS", help="Of all weights, as 8.5bit. [default: as the file says]")
@options.written_file("-o", "--output", "file", endings=(".yaml",), help="Write the card here, and not to the screen.")
def model_import(config: Path, name: str | None, precision: str | None, file: Path | None) -> None:
    """Make a model card from a config.json as it is published with a model's weights."""
    from emulator.spec.model import BITS
    from emulator.spec.model_import import import_config

    try:
        bits = BITS.parse(precision) if precision is not None else None
    except ValueError as error:
        raise UsageError(f"--precision: {error}") from None
    card, _ = import_config(config, name or config.resolve().parent.name or "model", bits)
    if file:
        file.write_text(card)
    else:
        click.echo(card.rstrip())
