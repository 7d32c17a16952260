"""The reference workload over real cables in a guest kernel: how exact it is, and how it ends when something breaks."""

import pytest

from emulator.guest.launch import import_paths
from tests.guest import workload_inside
from tests.guest.conftest import Bare


def script(check: str) -> str:
    return f"""
        sys.path[:0] = {import_paths()}
        from tests.guest import workload_inside
        workload_inside.{check}()
        say("passed")
        """


@pytest.mark.parametrize("check", [check.__name__ for check in workload_inside.VIRTUAL])
def test_on_the_virtual_clock(bare: Bare, check: str) -> None:
    assert bare.run(script(check), "syscall-ns=0", "clock-read-ns=1", timeout=110) == ["passed"]


def test_on_the_real_clock(bare: Bare) -> None:
    assert bare.run(script("real_clock"), clock="real", timeout=110) == ["passed"]
