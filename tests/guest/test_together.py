"""Commands at the same moment on one cluster: they wait for each other, or one says why it does not go on."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest.commands import Commands, Done, commands, ended


@pytest.fixture
def emu(kernel: Path, tmp_path: Path) -> Iterator[Commands]:
    assert kernel.is_file()
    with commands(tmp_path) as found:
        yield found


def at_once(emu: Commands, *calls: tuple[str, ...]) -> list[Done]:
    processes = [emu.start(*words) for words in calls]
    return [ended(process) for process in processes]


def test_of_two_ups_one_builds_and_the_other_says_that_it_stands(emu: Commands) -> None:
    up = ("up", str(emu.pair), "--name", "x")
    first, second = sorted(at_once(emu, up, up), key=lambda done: done.returncode)
    assert (first.returncode, second.returncode) == (0, 7), second.stderr
    assert "stands already" in second.stderr
    assert emu.listed() == {"x": "up"}


def test_two_ups_of_one_file_under_two_names_are_two_clusters(emu: Commands) -> None:
    done = at_once(emu, ("up", str(emu.pair), "--name", "x"), ("up", str(emu.pair), "--name", "y"))
    assert [one.returncode for one in done] == [0, 0]
    assert emu.listed() == {"x": "up", "y": "up"}


def test_up_and_down_leave_a_cluster_or_none(emu: Commands) -> None:
    for _ in range(3):
        up, down = at_once(emu, ("up", str(emu.pair), "--name", "x"), ("down", "x"))
        assert up.returncode == 0, up.stderr
        assert down.returncode in (0, 7), down.stderr
        assert emu.listed() == ({} if down.returncode == 0 else {"x": "up"})
        emu.all_down()


def test_two_downs_are_one_and_a_message(emu: Commands) -> None:
    assert emu("up", str(emu.pair), "--name", "x").returncode == 0
    done = at_once(emu, ("down", "x"), ("down", "x"))
    assert sorted(one.returncode for one in done) == [0, 7], [one.stderr for one in done]
    assert emu.listed() == {}


def test_two_benches_on_one_cluster_both_measure_what_one_alone_does(emu: Commands) -> None:
    assert emu("up", str(emu.pair), "--name", "x").returncode == 0
    words = ("bench", "x", "--tokens", "200", "--json")
    alone = json.loads(emu(*words).stdout)["token_time_ns"]
    done = at_once(emu, words, words)
    assert [one.returncode for one in done] == [0, 0], [one.stderr for one in done]
    assert [json.loads(one.stdout)["token_time_ns"] for one in done] == [alone, alone]


def test_a_down_ends_a_bench_with_a_message(emu: Commands) -> None:
    assert emu("up", str(emu.pair), "--name", "x").returncode == 0
    with emu.start("bench", "x", "--tokens", "1000000") as process:
        time.sleep(1.5)
        assert process.poll() is None
        down = emu("down", "x")
        bench = ended(process, 30)
    assert down.returncode == 0, down.stderr
    assert bench.returncode in (7, 8), bench.stderr
    assert bench.stderr.startswith("error: ")
    assert emu.listed() == {}
