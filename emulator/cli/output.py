"""What a person sees: tables, JSON, progress bars on a terminal. Everything that prints goes through here."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

Progress = Callable[[str, float], None]
"""Called with what is being done and the share that is done, 0 to 1."""


def console(stderr: bool = False) -> Console:
    """A console that uses colour only where the terminal has it; lines are never cut where output is a file."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 200, highlight=False, soft_wrap=False)


def table(title: str, columns: list[str], rows: list[list[str]], *, left: int = 1) -> None:
    """Print a table: the first `left` columns are words, the others figures."""
    drawn = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        drawn.add_column(name, justify="left" if index < left else "right", overflow="fold")
    for row in rows:
        # As text: a name in brackets is no markup.
        drawn.add_row(*(Text(cell) for cell in row))
    console().print(drawn)


def print_json(value: Any) -> None:
    """Print a value for programs: indented JSON, keys in the order of their type."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def note(text: str) -> None:
    """Say something to the person, beside the output."""
    click.echo(text, err=True)


def warn(text: str) -> None:
    """Say what may be wrong with a result."""
    click.echo(f"{click.style('warning:', fg='yellow')} {text}", err=True)


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    """A bar on the terminal's standard error; nothing where that is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda _what, _share: None
        return
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)
