"""A cable pulled beside a run: nothing lost, equal in two runs, and as before at the end."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.guest.commands import Commands, commands

PULLED = """\
name: pulled
description: While the cable holds packets.
events:
  - {at: 5010us, action: down, a: n0, b: n1}
  - {at: 40ms, action: up, a: n0, b: n1}
"""


def bench(emu: Commands, *words: str) -> dict[str, Any]:
    done = emu("bench", *words, "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    del result["wall_seconds"]
    return result


def test_a_cable_pulled_in_mid_token(tmp_path_factory: pytest.TempPathFactory) -> None:
    base: Path = tmp_path_factory.mktemp("scenario")
    file = base / "pulled.yaml"
    file.write_text(PULLED)
    with commands(base) as emu:
        words = ("mesh4-tb5-rdma", "--ideal", "--tokens", "500", "--scenario", str(file))
        first = bench(emu, *words)
        assert first == bench(emu, *words)
        down, up = first["events"]
        assert first["retransmissions"] > 0
        assert down["tokens_before"] == 40
        assert down["tokens_before"] + down["tokens_until_next"] + up["tokens_until_next"] == 500
        assert down["usual_token_time_ns"] == up["token_time_ns"]
        assert down["slowest_token_ns"] > 10 * down["usual_token_time_ns"]
        assert 0 < down["recovered_after_ns"] < 35_000_000

        assert emu("up", "mesh4-tb5-rdma", "--ideal", "--name", "m").returncode == 0
        before = bench(emu, "m", "--tokens", "20")
        bench(emu, "m", "--tokens", "500", "--scenario", str(file))
        after = bench(emu, "m", "--tokens", "20")
        assert after["token_time_ns"]["p50"] == before["token_time_ns"]["p50"]
        (listed,) = json.loads(emu("ps", "--json").stdout)
        assert listed["changes"] == []
