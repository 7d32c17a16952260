"""A protocol taken apart in the guest: the documents' way from 300 us to 40 us, the same in two runs."""

import json
from typing import Any

import pytest

from tests.guest.test_commands import Emu, emu, state

__all__ = ["emu", "state"]

WIRE_NS = 1447
"""Serialisation of 14336 bytes and the headers of two packets at 80 Gbit/s."""


def steps(emu: Emu, *words: str) -> list[dict[str, Any]]:
    done = emu("ablate", "--json", *words)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["steps"]
    return found


def test_the_waterfall_is_the_documents_and_equal_in_two_runs(emu: Emu) -> None:
    first = steps(emu, "--tokens", "10")
    delays = [step["exchange_delay_ns"] for step in first]
    assert delays[0] == pytest.approx(300_000 + WIRE_NS, rel=0.0005)
    assert delays[-1] == pytest.approx(40_000 + WIRE_NS, rel=0.0005)
    assert delays == sorted(delays, reverse=True)
    # A connection costs a round trip, whether the kernel's path is taken or not.
    kept = next(step for step in first if step["name"] == "connection kept")
    assert kept["gain_ns"] == pytest.approx(80_000, rel=0.001)
    assert kept["gain_alone_ns"] == pytest.approx(80_000, rel=0.001)
    assert sum(step["gain_ns"] for step in first) == delays[0] - delays[-1]
    assert steps(emu, "--tokens", "10") == first


def test_every_pattern_runs_under_a_protocol_that_opens_connections(emu: Emu) -> None:
    for topology, workload in (
        ("mesh4-tb5-rdma", "pipeline"),
        ("mesh4-tb5-rdma", "all-reduce-mesh"),
        ("mesh4-tb5-rdma", "all-reduce-ring"),
        ("dual-plane-8", "aggregate"),
    ):
        words = ("--workload", workload, "--set", "protocol=tcp-measured", "--tokens", "3", "--json")
        done = emu("bench", topology, *words)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["protocol"] == "tcp-measured"
