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
