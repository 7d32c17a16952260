"""A few random sequences of commands and kills; `make stateful SEQUENCES=200` plays many."""

from pathlib import Path

import pytest

from tests.guest.stateful import play


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_left_of_a_random_sequence(kernel: Path, seed: int) -> None:
    assert kernel.is_file()
    assert len(play(seed)) >= 1
