"""Each exit code that `emu --help` lists is listed once, and each class of error ends a command with it."""

import re
from collections import Counter
from typing import NoReturn

import click
import pytest

from emulator import errors
from emulator.cli import main as command_line
from emulator.errors import EmuError

KINDS = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, EmuError)),
    key=lambda kind: kind.exit_code,
)


def ends(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    """The exit status of a command that ends so."""

    def fail(**_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(command_line.cli, "main", fail)
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_each_is_listed_once_with_what_it_means() -> None:
    lines = [re.fullmatch(r" +(\d+)  (.+)", line) for line in command_line.EXIT_CODES.splitlines()]
    listed = Counter(int(line[1]) for line in lines if line)
    assert len(lines) == len(listed)
    assert set(listed) == {0, 70, 130, *(kind.exit_code for kind in KINDS)}
    assert all(line and len(line[2]) > 10 for line in lines)


def test_no_two_classes_share_one() -> None:
    assert max(Counter(kind.exit_code for kind in KINDS).values()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_ends_with_that_of_its_error(
    kind: type[EmuError], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(monkeypatch, kind("what is wrong; what to do")) == kind.exit_code
    assert capsys.readouterr().err == "error: what is wrong; what to do\n"


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.UsageError("no such option"), 2, "no such option"),
        (ZeroDivisionError("x"), 70, "this is a fault of emu"),
        (OSError(28, "No space left on device"), 1, "free some space"),
    ],
)
def test_what_is_no_error_of_emu(
    error: BaseException,
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ends(monkeypatch, error) == status
    message = capsys.readouterr().err
    assert said in message
    assert "Traceback" not in message
