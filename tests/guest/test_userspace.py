"""The user-space path in the guest: exact on a perfect cable, complete on a bad one, real on the real clock."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.guest.test_commands import Emu, emu, state

__all__ = ["emu", "state"]

LOSSY = """\
name: lossy
description: Two nodes and a cable that loses packets.
nodes:
  - {count: 2, prefix: n, memory: 512GB, memory_bandwidth: 819GB/s, interconnects: {thunderbolt5: {ports: 6}}}
planes:
  a:
    shape: full-mesh
    profile: thunderbolt5-rdma
    links:
      - {a: n0, b: n1, loss: 1%}
"""
RDMA = ("--set", "protocol=rdma")


def bench(emu: Emu, *words: str) -> dict[str, Any]:
    done = emu("bench", *words, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("workload", ["token-exchange", "all-reduce-mesh", "all-reduce-ring", "pipeline"])
def test_a_perfect_cable_gives_what_tcp_gives(emu: Emu, workload: str) -> None:
    words = ("mesh4-tb5-rdma", "--ideal", "--workload", workload, "--tokens", "5")
    tcp, user_space = bench(emu, *words), bench(emu, *words, *RDMA)
    assert user_space["retransmissions"] == 0
    assert user_space["token_time_ns"]["p50"] == pytest.approx(tcp["token_time_ns"]["p50"], abs=10)


def test_what_a_cable_loses_is_sent_again_and_all_of_it_comes(emu: Emu, tmp_path: Path) -> None:
    """Each message is compared with what was sent; one lost, repeated or changed ends the run."""
    topology = tmp_path / "lossy.yaml"
    topology.write_text(LOSSY)
    words = (str(topology), "--workload", "all-reduce-mesh", "--set", "payload=1MiB", "--tokens", "20", *RDMA)
    first = bench(emu, *words)
    lost = sum(first["cables"][0][way]["traffic"]["drops"] for way in ("a_to_b", "b_to_a"))
    assert lost > 20
    assert first["retransmissions"] >= lost / 2
    assert bench(emu, *words)["token_time_ns"] == first["token_time_ns"]


def test_frames_cross_a_switch(emu: Emu) -> None:
    found = bench(emu, "switch4-gbe", "--ideal", "--workload", "all-reduce-mesh", "--tokens", "3", *RDMA)
    assert found["retransmissions"] == 0


def test_nodes_that_are_not_joined_are_refused(emu: Emu) -> None:
    done = emu("bench", "ring4", "--workload", "all-reduce-mesh", *RDMA)
    assert done.returncode == 2
    assert "no node passes on" in done.stderr


def test_memory_that_cannot_be_pinned_is_refused(emu: Emu) -> None:
    assert emu("up", "mesh4-tb5-rdma", "--memory", "512MiB").returncode == 0
    done = emu("bench", "mesh4-tb5-rdma", *RDMA)
    assert done.returncode == 10
    assert "4 nodes pin 976 MiB" in done.stderr
    assert emu("down", "--all").returncode == 0


def test_on_the_real_clock_each_step_is_really_done(emu: Emu) -> None:
    done = emu("ablate", "--clock", "real", "--kernel", "guest", "--tokens", "50", "--json")
    assert done.returncode in (0, 11), done.stderr
    steps = {step["name"]: step for step in json.loads(done.stdout)["steps"]}
    assert all(step["costs_ns"] == {} for step in steps.values())
    if done.returncode == 11:
        pytest.skip("the host was busy, and the command said that its figures are no good")
    # Two round trips over 40 us of cable are more than noise.
    assert steps["connection kept"]["gain_ns"] > 0
    assert steps["tcp-documents"]["exchange_delay_ns"] > steps["checksum in hardware"]["exchange_delay_ns"]
