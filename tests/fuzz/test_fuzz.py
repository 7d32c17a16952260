"""Random and damaged bytes for all that reads files and wires: a value or an error, in bounded time and memory.

A few hundred inputs for each here; `make fuzz SECONDS=60` goes on for as long as one likes.
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.mutate import BOMBS, inputs
from tests.fuzz.targets import TARGETS, judge, seeds

MEMORY = 2 << 30
"""Bytes of address space that reading may take: the interpreter with numpy and pydantic has half of that."""


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_damaged_is_read_or_refused(name: str, tmp_path: Path) -> None:
    @settings(
        max_examples=150,
        deadline=10_000,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(inputs(name))
    def check(data: bytes) -> None:
        judge(name, data, tmp_path)

    check()


@pytest.mark.parametrize("name", TARGETS)
def test_a_good_file_is_taken(name: str, tmp_path: Path) -> None:
    """Where all were refused, nothing behind the first check would have been tried."""
    assert any(judge(name, data, tmp_path) for data in seeds(name))


@pytest.mark.parametrize("name", TARGETS)
def test_bombs_are_bounded_in_time_and_memory(name: str, tmp_path: Path) -> None:
    """In a process that may not have more: what expands without bound ends there as a MemoryError, and fails."""
    code = (
        "import resource, sys; from pathlib import Path\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))\n"
        "from tests.fuzz.mutate import BOMBS; from tests.fuzz.targets import judge\n"
        f"for bomb in BOMBS: judge({name!r}, bomb, Path(sys.argv[1]))\n"
    )
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    assert time.monotonic() - begin < 60
    assert len(BOMBS) > 5


def test_a_mistake_would_be_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The judge passes on whatever is no error of emu's."""
    monkeypatch.setitem(TARGETS, "topology", lambda file: file.read_bytes()[1000])
    with pytest.raises(IndexError):
        judge("topology", b"name: x", tmp_path)
