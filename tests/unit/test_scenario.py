"""Scenario files: what they come to on a plan, and what is wrong with wrong ones."""

from pathlib import Path

import pytest

from emulator.errors import SpecError
from emulator.plan.model import Plan
from emulator.spec.shipped import shipped
from emulator.study.prepare import read_plan
from emulator.study.scenario import read_events

HEAD = "name: x\ndescription: x\nevents:\n"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return read_plan("mesh4-tb5-rdma", cluster="m")


@pytest.mark.parametrize("name", sorted(shipped("scenario")))
def test_shipped_scenarios_end_as_they_begin(name: str, plan: Plan) -> None:
    events = read_events(name, plan)
    assert events[0].plan != plan
    assert events[-1].plan == plan


def test_events_add_up(plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        HEAD
        + "  - {at: 1ms, action: set, a: n1, b: n0, one_way: true, loss: 5%}\n"
        + "  - {at: 2ms, action: down, a: n2, b: n3}\n"
    )
    first, second = read_events(str(file), plan)
    assert (first.at_ns, second.at_ns) == (1_000_000, 2_000_000)
    assert (first.plan.cables[0].a.egress.loss, first.plan.cables[0].b.egress.loss) == (0.0, 0.05)
    assert second.plan.down == ("a:n2-n3",)
    assert second.plan.cables == first.plan.cables


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("{at: 1ms, action: down, a: n0, b: n9}", "x.yaml:4"),
        ("{at: 1ms, action: set, a: n0, b: n1}", "changes nothing"),
        ("{at: 1ms, action: down, a: n0, b: n1, loss: 5%}", "takes no values"),
        ("{at: 1ms, action: burn, a: n0, b: n1}", "x.yaml:4"),
        ("{at: 1, action: down, a: n0, b: n1}", "unit"),
        ("{at: 1ms, action: down, a: n0, b: n1}\n  - {at: 0ms, action: up, a: n0, b: n1}", "order"),
        ("{at: 1ms, action: set, a: n0, b: n1, jitter: 1s}", "jitter"),
    ],
)
def test_a_wrong_scenario(plan: Plan, tmp_path: Path, event: str, said: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"{HEAD}  - {event}\n")
    with pytest.raises(SpecError, match=said):
        read_events(str(file), plan)
