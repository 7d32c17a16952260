"""Cables of a standing cluster that change and fail, through the command line, on the virtual clock."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from emulator import state
from emulator.place.change import change as change_cluster
from emulator.place.cluster import Cluster
from emulator.place.guest import GuestCluster
from emulator.plan import change
from emulator.plan.model import Plan
from tests.guest.commands import Commands, commands


@pytest.fixture(scope="module")
def emu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with commands(tmp_path_factory.mktemp("link")) as emu:
        done = emu("up", "mesh4-tb5-rdma", "--ideal", "--name", "m")
        assert done.returncode == 0, done.stderr
        yield emu


@pytest.fixture(autouse=True)
def as_built(emu: Commands) -> Iterator[None]:
    yield
    call(emu, "heal")
    call(emu, "link", "set", "n0", "n1", "--reset")


def call(emu: Commands, *words: str) -> str:
    done = emu(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ping_us(emu: Commands, source: str, target: str) -> int:
    """Of the last of two pings: there and back."""
    return round(
        1000 * float(re.findall(r"time=([0-9.]+) ms", call(emu, "exec", source, "--", "ping", "-c2", target))[-1])
    )


def near(microseconds: int) -> Any:
    """What ping measures there: its own system calls and its rounding come on top."""
    return pytest.approx(microseconds, abs=3)


def changes(emu: Commands) -> list[str]:
    (one,) = json.loads(call(emu, "ps", "--json"))
    found: list[str] = one["changes"]
    return found


def test_a_value_changes_one_way_and_back(emu: Commands) -> None:
    assert ping_us(emu, "n0", "n1") == near(80)
    call(emu, "link", "set", "n0", "n1", "--one-way", "--delay", "340us")
    assert ping_us(emu, "n0", "n1") == near(380)
    assert changes(emu) == ["a:n0-n1 n0 to n1: delay_ns 340000 (built: 40000)"]
    call(emu, "link", "set", "n0", "n1", "--reset")
    assert ping_us(emu, "n0", "n1") == near(80)
    assert changes(emu) == []


def test_a_run_keeps_a_changed_value(emu: Commands) -> None:
    call(emu, "link", "set", "n0", "n1", "--delay", "340us")
    result = json.loads(call(emu, "bench", "m", "--tokens", "5", "--json"))
    (cable,) = (c for c in result["cables"] if (c["a"], c["b"]) == ("n0", "n1"))
    assert cable["a_to_b"]["held"]["delay_ns"] == 340_000
    assert ping_us(emu, "n0", "n1") == near(680)


def test_traffic_goes_round_a_pulled_cable_and_comes_back(emu: Commands) -> None:
    call(emu, "link", "down", "n0", "n1")
    assert ping_us(emu, "n0", "n1") == near(160)
    assert ping_us(emu, "n1", "n0") == near(160)
    call(emu, "bench", "m", "--tokens", "5")
    call(emu, "link", "up", "n0", "n1")
    assert ping_us(emu, "n0", "n1") == near(80)
    assert changes(emu) == []


def test_a_partition_and_its_end(emu: Commands) -> None:
    call(emu, "partition", "n0,n1", "n2,n3")
    assert emu("exec", "n0", "--", "ping", "-c1", "-W1", "n2").returncode != 0
    assert ping_us(emu, "n0", "n1") == near(80)
    call(emu, "heal")
    assert ping_us(emu, "n0", "n2") == near(80)


def test_a_change_that_was_cut_short(emu: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written down, and killed before the kernel heard of it: `ps` says so, and the next change makes all true."""
    monkeypatch.setenv("EMU_STATE_DIR", str(emu.state))

    class Killed(BaseException):
        pass

    def killed(_cluster: Cluster, _before: Plan, _after: Plan, _everything: bool) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(GuestCluster, "change", killed)
        with pytest.raises(Killed):
            change_cluster("m", lambda plan, built: change.with_down(plan, built, {"a:n0-n1"}))
    assert state.read("m").changing
    assert emu.listed() == {"m": "half-changed"}
    call(emu, "link", "down", "n0", "n1")
    assert emu.listed() == {"m": "up"}
    assert ping_us(emu, "n0", "n1") == near(160)


@pytest.mark.parametrize(
    "words",
    [
        ("link", "set", "n0", "n1"),
        ("link", "set", "n0", "n9", "--delay", "1ms"),
        ("link", "set", "n0", "n1", "--delay", "5"),
        ("link", "set", "n0", "n1", "--jitter", "1ms"),
        ("link", "down", "n0", "n1", "--plane", "b"),
        ("partition", "n0"),
        ("partition", "n0", "n1"),
    ],
)
def test_what_makes_no_sense_changes_nothing(emu: Commands, words: tuple[str, ...]) -> None:
    done = emu(*words)
    assert done.returncode == 2
    assert "rror" in done.stderr
    assert changes(emu) == []
