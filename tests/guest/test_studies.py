"""Scaling, serving and timelines in the guest: small runs, equal in two calls."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.guest.test_commands import Emu, emu, state

__all__ = ["emu", "state"]


def output(emu: Emu, *words: str) -> dict[str, Any]:
    done = emu(*words, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_continuous_batching_beats_static_on_one_trace_and_repeats(emu: Emu) -> None:
    words = ("serve", "mesh4-tb5-rdma", "--requests", "12", "--output", "8..64", "--max-batch", "4", "--seed", "3")
    first = output(emu, *words)
    by_name = {one["batching"]: one for one in first["outcomes"]}
    assert by_name["continuous"]["tokens_per_second"] > by_name["static"]["tokens_per_second"]
    assert output(emu, *words)["outcomes"] == first["outcomes"]


def test_efficiency_follows_from_the_measured_communication(emu: Emu) -> None:
    words = ("scale", "--topologies", "mesh4-tb5-rdma", "--compute", "1ms", "--tokens", "2", "--ideal")
    found = output(emu, *words, "--set", "parameters.times=4")
    points = {(one["mode"], one["nodes"]): one for one in found["points"]}
    for nodes in (2, 4):
        one = points["strong", nodes]
        # Four all-reduces of one phase: 41.45 us each, and what more peers add.
        assert one["communication_time_ns"] == pytest.approx(4 * 41_450, rel=0.01)
        assert one["efficiency"] == pytest.approx(1e6 / (nodes * one["step_time_ns"]))
    for crossing in found["crossings"]:
        assert crossing["efficiency"] == pytest.approx(crossing["wanted"], abs=0.01)


def test_a_trace_shows_who_computed_sent_and_waited(emu: Emu, tmp_path: Path) -> None:
    trace, picture = tmp_path / "token.json", tmp_path / "token.png"
    words = ("bench", "mesh4-tb5-rdma", "--ideal", "--tokens", "3", "--set", "compute_per_node=100us")
    result = output(emu, *words, "--trace", str(trace), "--timeline", str(picture), "--token", "1")
    events = json.loads(trace.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    names = {
        event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] in ("process_name", "thread_name")
    }
    assert {"n0", "n1", "n2", "n3"} <= names
    assert any("comput" in event["name"] for event in spans)
    begin, end = min(e["ts"] for e in spans), max(e["ts"] + e["dur"] for e in spans)
    assert (end - begin) * 1000 == pytest.approx(result["token_time_ns"]["p50"], rel=0.5)
    assert picture.read_bytes().startswith(b"\x89PNG")
