"""`emu verify`: what is built as requested is found so, and what is not is named."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emulator.place.choose import choose
from emulator.place.life import temporary
from emulator.spec.shipped import shipped
from emulator.study.prepare import read_plan
from emulator.study.verify import SHORT, Bounds, Verification, verify
from tests.guest.test_commands import Emu, emu, state

__all__ = ["emu", "state"]

LOSSY = """\
name: lossy
description: A cable with all that netem can do to packets.
nodes:
  - {count: 2, prefix: n, memory: 512GB, memory_bandwidth: 819GB/s, interconnects: {thunderbolt5: {ports: 6}}}
planes:
  a:
    shape: full-mesh
    profile: thunderbolt5-rdma
    links:
      - {a: n0, b: n1, loss: 1%, duplicate: 2%, jitter: 5us, distribution: normal}
"""


def verified(emu: Emu, *words: str, code: int = 0) -> dict[str, Any]:
    done = emu("verify", "--json", *words)
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("topology", shipped("topology"))
def test_every_shipped_topology_is_as_requested(emu: Emu, topology: str) -> None:
    found = verified(emu, topology, "--short", "--ignore-ports")
    assert found["ok"]


@pytest.mark.parametrize("topology", ["mesh4-tb5-rdma", "switch4-gbe", "cost-2"])
def test_delay_rate_and_jitter_are_the_profiles(emu: Emu, topology: str) -> None:
    ways = [way for cable in verified(emu, topology)["cables"] for way in (cable["a_to_b"], cable["b_to_a"])]
    for way in ways:
        assert way["rate_bps"] == pytest.approx(way["requested_rate_bps"], rel=0.001)
        assert way["jitter_distance"] <= way["jitter_bound"]
        if not way["requested_jitter_ns"]:
            assert (
                0
                <= way["delay_ns"]["min"] - way["requested_delay_ns"]
                <= way["delay_ns"]["max"] - way["requested_delay_ns"]
                <= 2
            )


def test_loss_duplication_and_a_distribution_are_found_as_requested(emu: Emu, tmp_path: Path) -> None:
    topology = tmp_path / "lossy.yaml"
    topology.write_text(LOSSY)
    way = verified(emu, str(topology))["cables"][0]["a_to_b"]
    assert way["loss"]["low"] <= 0.01 <= way["loss"]["high"]
    assert 0.005 < way["loss"]["achieved"] < 0.02
    assert way["duplicates"] > 0
    assert way["jitter_distance"] < way["jitter_bound"]
    # Held against another distribution, the same delays would not do.
    assert way["jitter_bound"] < 0.06


def test_what_is_changed_behind_its_back_is_named(emu: Emu) -> None:
    assert emu("up", "mesh4-tb5-tcp", "--name", "v").returncode == 0
    changed = emu(
        "exec",
        "n0",
        "--",
        "sh",
        "-c",
        "tc qdisc change dev $(ls /sys/class/net | grep -v lo | head -1) root netem delay 350us",
    )
    assert changed.returncode == 0, changed.stderr
    done = emu("verify", "v")
    assert done.returncode == 13
    assert "1 of 6 cables are not as requested" in done.stderr
    assert "median 349.95" in done.stderr  # tc counts in ticks of 64 ns
    assert emu("down", "v").returncode == 0


def test_a_wrong_cable_is_named_with_the_one_it_was_swapped_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kernel: Path
) -> None:
    del kernel
    monkeypatch.setenv("EMU_STATE_DIR", str(tmp_path / "state"))
    plan = read_plan("mesh4-tb5-rdma", cluster="swapped", ideal=True)
    first, *middle, last = plan.cables
    assert (first.name, last.name) == ("a:n0-n1", "a:n2-n3")
    replace = msgspec.structs.replace
    wrong = replace(plan, cables=(replace(first, b=last.b), *middle, replace(last, b=first.b)))
    found = verified_plan(wrong, plan)
    assert not found.ok
    assert [cable.name for cable in found.cables if not cable.ok] == ["a:n0-n1", "a:n2-n3"]
    assert any("of n0 should lead to" in fault and "of n3" in fault for fault in found.faults)
    assert verified_plan(plan, plan).ok


def verified_plan(built: Any, expected: Any) -> Verification:
    with temporary(
        built,
        choose("guest", "virtual"),
        file="mesh4-tb5-rdma",
        memory="512MiB",
        seed=1,
        ideal=True,
        progress=lambda *_: None,
    ) as cluster:
        return verify(cluster, Bounds(), SHORT, lambda *_: None, 60, expected)


def test_the_real_clock_says_what_it_adds(emu: Emu) -> None:
    done = emu("verify", "mesh4-tb5-tcp", "--clock", "real", "--kernel", "guest")
    assert done.returncode == 13
    assert "real clock adds" in done.stderr
