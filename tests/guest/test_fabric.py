"""The fabric in a real kernel, as root: what cables do is measured on the virtual clock."""

import pytest

from emulator.guest.launch import import_paths
from emulator.plan.model import encode
from emulator.spec.shipped import shipped
from emulator.study.prepare import read_plan
from tests.guest import fabric_inside
from tests.guest.conftest import Bare

INSIDE = """
sys.path[:0] = {paths}
from emulator.plan.model import encode
from emulator.spec.shipped import shipped
from emulator.study.prepare import read_plan
from tests.guest import fabric_inside
fabric_inside.{call}
say("passed")
"""


def inside(guest: Bare, call: str) -> None:
    said = guest.run(INSIDE.format(paths=import_paths(), call=call), "syscall-ns=0", "clock-read-ns=1")
    assert said == ["passed"]


@pytest.mark.parametrize("check", fabric_inside.CHECKS)
def test_fabric(bare: Bare, check: str) -> None:
    inside(bare, f"run({check!r})")


@pytest.mark.parametrize("topology", shipped("topology"))
def test_shipped_topology(bare: Bare, topology: str) -> None:
    plan = read_plan(topology, cluster="test", ignore_ports=True, ideal=True)
    inside(bare, f"all_reach_all({encode(plan).decode()!r})")
