"""The command `protocol`: look at protocol files."""

import click

from emulator.cli import options, output
from emulator.spec.shipped import resolve, shipped


@click.group(epilog="Example: emu protocol list")
def protocol() -> None:
    """Look at protocols: what messages cost above their cables."""


@protocol.command("list", epilog="Example: emu protocol list --json")
@options.as_json
def protocol_list(as_json: bool) -> None:
    """List the shipped protocols."""
    from emulator.spec.protocol import load_protocol

    found = [load_protocol(name) for name in shipped("protocol")]
    if as_json:
        output.print_json([one.model_dump(mode="json") for one in found])
        return
    rows = [[one.name, one.path, one.connection.when, one.description] for one in found]
    output.table("", ["protocol", "path", "connection per", "what it is"], rows, left=4)


@protocol.command("show", epilog="Example: emu protocol show tcp-documents")
@click.argument("name")
@options.as_json
def protocol_show(name: str, as_json: bool) -> None:
    """Show a protocol: its file, or its values with --json."""
    from emulator.spec.protocol import load_protocol

    found = load_protocol(name)
    if as_json:
        output.print_json(found.model_dump(mode="json"))
    else:
        click.echo(resolve("protocol", name).read_text().rstrip())
