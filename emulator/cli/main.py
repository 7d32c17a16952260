"""The `emu` command: its groups, and the one place where an error becomes a message and an exit code."""

import errno
import importlib
import os
import sys
import traceback
from pathlib import Path

import click

from emulator import __version__, errors
from emulator.errors import EmuError

COMMANDS = {
    "up": "emulator.cli.cluster:up",
    "down": "emulator.cli.cluster:down",
    "ps": "emulator.cli.cluster:ps",
    "exec": "emulator.cli.cluster:exec_",
    "shell": "emulator.cli.cluster:shell",
    "link": "emulator.cli.link:link",
    "partition": "emulator.cli.link:partition",
    "heal": "emulator.cli.link:heal",
    "bench": "emulator.cli.bench:bench",
    "verify": "emulator.cli.verify:verify",
    "capture": "emulator.cli.capture:capture",
    "top": "emulator.cli.capture:top",
    "compare": "emulator.cli.bench:compare",
    "scale": "emulator.cli.scale:scale",
    "serve": "emulator.cli.serve:serve",
    "ablate": "emulator.cli.ablate:ablate",
    "predict": "emulator.cli.predict:predict",
    "topology": "emulator.cli.files:topology",
    "profile": "emulator.cli.files:profile",
    "workload": "emulator.cli.files:workload",
    "protocol": "emulator.cli.protocol:protocol",
    "model": "emulator.cli.model:model",
    "schema": "emulator.cli.files:schema",
    "kernel": "emulator.cli.kernel:kernel",
    "doctor": "emulator.cli.doctor:doctor",
}

EXIT_CODES = "\n".join(
    f"  {code:>3}  {text}"
    for code, text in [
        (0, "All went well. `emu exec` and `emu shell` give the exit status of the program they ran."),
        *sorted(
            (kind.exit_code, (kind.__doc__ or "").split("\n")[0])
            for kind in vars(errors).values()
            if isinstance(kind, type) and issubclass(kind, EmuError)
        ),
        (70, "A fault of emu itself; please report it."),
        (130, "Interrupted by Ctrl-C."),
    ]
)


OUTSIDE = {
    errno.ENOSPC: "the output cannot be written; free some space where it goes",
    errno.EIO: "the output cannot be written; its terminal has gone",
    errno.EMFILE: "this user may not open so many files; raise: ulimit -n",
    errno.ENFILE: "this host has no more open files; end something else",
    errno.EAGAIN: "this user may not start so many processes; raise: ulimit -u",
    errno.ENOMEM: "there is not enough memory; end something else, or raise: ulimit -v",
}
"""Errors of the system that are no fault of emu wherever they come up, and what to do."""


class Commands(click.Group):
    """The commands, each imported when it is called, so that `emu ps` does not wait for what `emu bench` needs."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute = COMMANDS[name].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_epilog(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write(EXIT_CODES + "\n")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="emu")
def cli() -> None:
    """Build virtual clusters whose cables have the delay and rate of real interconnects, and measure on them.

    \b
    emu bench mesh4-tb5-rdma              what a token costs on a mesh of four nodes
    emu up topologies/mesh4-tb5-rdma.yaml build it and leave it standing
    emu exec n0 -- ping -c 3 n1           run anything in it
    emu down --all                        take it down
    """


def main() -> None:
    """Run the command line: click's own errors exit with 2, ours with their class's code, never a traceback."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    try:
        status = cli.main(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(status if isinstance(status, int) else 0)
    except EmuError as error:
        _fail(str(error), error.exit_code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted", 130)
    except BrokenPipeError:
        # Whoever read the output has gone: the rest of it is not wanted.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in OUTSIDE:
            _fail(f"{error.strerror}: {OUTSIDE[error.errno]}", 1)
        if os.environ.get("EMU_DEBUG"):
            traceback.print_exc()
        where = traceback.extract_tb(error.__traceback__)[-1]
        _fail(
            f"this is a fault of emu, please report it: {type(error).__name__}: {error} "
            f"({Path(where.filename).name}:{where.lineno}; EMU_DEBUG=1 shows more)",
            70,
        )


def _fail(message: str, status: int) -> None:
    click.echo(f"{click.style('error:', fg='red')} {message}", err=True)
    sys.exit(status)
