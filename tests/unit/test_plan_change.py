"""Changes to a plan: values, cables that are down, partitions, and the way back."""

import pytest

from emulator.errors import UsageError
from emulator.plan import change
from emulator.plan.model import Plan
from emulator.study.prepare import read_plan


@pytest.fixture(scope="module")
def built() -> Plan:
    return read_plan("mesh4-tb5-rdma", cluster="m")


def route(plan: Plan, source: str, target: str) -> tuple[str, int] | None:
    return next(((r.interface, r.hops) for r in plan.node(source).routes if r.node == target), None)


def test_only_what_is_named_changes_one_way(built: Plan) -> None:
    made = change.with_values(built, change.cables_between(built, "n0", "n1"), {"delay_ns": 90_000}, "n0")
    assert change.changes(made, built) == ["a:n0-n1 n0 to n1: delay_ns 90000 (built: 40000)"]
    assert change.as_built(made, built, change.cables_between(built, "n1", "n0")) == built


def test_a_pulled_cable_is_gone_round_and_comes_back(built: Plan) -> None:
    direct = route(built, "n0", "n1")
    assert direct
    assert direct[1] == 1
    made = change.with_down(built, built, {"a:n0-n1"})
    around = route(made, "n0", "n1")
    assert around
    assert around[1] == 2
    assert around[0] != direct[0]
    assert route(made, "n2", "n3") == route(built, "n2", "n3")
    assert change.with_down(made, built, ()) == built


def test_values_survive_a_cable_that_goes_down_and_comes_back(built: Plan) -> None:
    cables = change.cables_between(built, "n0", "n1")
    slow = change.with_values(built, cables, {"loss": 0.5})
    assert change.with_down(change.with_down(slow, built, {"a:n0-n1"}), built, ()) == slow


def test_a_partition_leaves_no_way(built: Plan) -> None:
    made = change.parted(built, built, (("n0", "n1"), ("n2", "n3")))
    assert route(made, "n0", "n2") is None
    assert route(made, "n0", "n1") == route(built, "n0", "n1")


def test_a_partition_that_leaves_a_way_is_refused(built: Plan) -> None:
    with pytest.raises(UsageError, match="still reach"):
        change.parted(built, built, (("n0",), ("n1",)))
    switched = read_plan("switch4-gbe", cluster="s")
    with pytest.raises(UsageError, match="still reach"):
        change.parted(switched, switched, ((switched.computing[0].name,), (switched.computing[1].name,)))


@pytest.mark.parametrize("pair", [("n0", "n9"), ("n0", "n0")])
def test_a_cable_that_is_none(built: Plan, pair: tuple[str, str]) -> None:
    with pytest.raises(UsageError):
        change.cables_between(built, *pair)


def test_values_that_do_not_fit(built: Plan) -> None:
    with pytest.raises(UsageError, match="jitter"):
        change.with_values(built, built.cables, {"jitter_ns": 10**9})
