"""The cases of docs/cases.md on cables that stand: each is an input that broke another emulator."""

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.guest.commands import Commands, commands
from tests.guest.conftest import Bare
from tests.guest.test_fabric import inside

HEADERS = 66
"""Bytes: Ethernet 14, IPv4 20, TCP with its timestamps 32."""


@pytest.fixture
def emu(kernel: Path, tmp_path: Path) -> Iterator[Commands]:
    assert kernel.is_file()
    with commands(tmp_path) as found:
        yield found


def one_cable(emu: Commands, link: str) -> str:
    """A topology of two nodes and a cable with values of its own."""
    file = emu.base / "cable.yaml"
    file.write_text(
        "name: cable\ndescription: d\nnodes: [{count: 2, prefix: n}]\nplanes:\n  a:\n    shape: line\n"
        f"    profile: thunderbolt5-tcp\n    links:\n      - {{a: n0, b: n1, {link}}}\n"
    )
    return str(file)


def bench(emu: Commands, topology: str, *words: str) -> Any:
    done = emu("bench", topology, "--ideal", "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("written", "ns"), [("0.5s", 500_000_000), ("300us", 300_000), ("0.9ms", 900_000)])
def test_c1_a_delay_is_applied_as_written(emu: Commands, written: str, ns: int) -> None:
    words = ("--tokens", "20", "--set", "payload=64B", "--set", "parameters.exchanges=1")
    run = bench(emu, one_cable(emu, f"delay: {written}"), *words)
    assert run["cables"][0]["a_to_b"]["held"]["delay_ns"] == ns
    assert run["exchange_delay_ns"]["p50"] == pytest.approx(ns + (64 + HEADERS) * 8 / 80, abs=20 + 0.0002 * ns)


def test_c1_a_bare_number_builds_nothing(emu: Commands) -> None:
    done = emu("up", one_cable(emu, "delay: 50"))
    assert done.returncode == 3
    assert "cable.yaml:9:" in done.stderr
    assert "write 50us or 50ms or 50s" in done.stderr
    assert emu.listed() == {}


@pytest.mark.parametrize("gbit", [80, 320, 800])
def test_c2_a_fast_cable_carries_its_rate(emu: Commands, gbit: int) -> None:
    run = bench(emu, one_cable(emu, f"rate: {gbit}Gbit/s, delay: 10us"), "--workload", "bulk")
    carried = run["payload_bytes"] * 8 / run["token_time_ns"]["p50"]
    assert 0.97 * gbit < carried <= gbit
    assert run["cables"][0]["a_to_b"]["held"]["rate_bps"] == gbit * 10**9


def test_c3_a_full_cable_with_much_under_way_drops_nothing(emu: Commands) -> None:
    """80 Gbit/s times 1 ms: 10 MB are under way, a thousand times what a default queue was made for."""
    run = bench(emu, one_cable(emu, "rate: 80Gbit/s, delay: 1ms"), "--workload", "bulk", "--tokens", "3")
    for way in ("a_to_b", "b_to_a"):
        assert run["cables"][0][way]["traffic"]["drops"] == 0
        assert run["cables"][0][way]["traffic"]["receive_drops"] == 0
    assert run["retransmissions"] == 0


def test_c4_a_kernel_without_netem_is_named_and_nothing_is_built_in_it(emu: Commands) -> None:
    """On a host that has netem the host's kernel is used; on one that has not, that is refused, and said by default."""
    from emulator.place.choose import host_cannot

    done = emu("up", str(emu.pair), "--kernel", "host", "--name", "x")
    reason = host_cannot()
    if reason is None:
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 5
        assert f"cannot be used: {reason}; use --kernel guest" in done.stderr
        assert emu.listed() == {}
        assert reason in emu("up", str(emu.pair), "--name", "x").stdout


def test_c4_netem_that_is_built_in_is_found(bare: Bare) -> None:
    """The guest's kernel has it built in: lsmod does not list it."""
    inside(bare, "run('support_is_found')")


@pytest.mark.parametrize("after", [0.2, 0.35, 0.5, 0.65])
def test_c5_a_killed_up_is_taken_down_and_comes_up(emu: Commands, after: float) -> None:
    """At any moment; tests/guest/test_commands.py does it before and after each line of the journal."""
    with emu.start("up", str(emu.pair), "--name", "x") as up:
        time.sleep(after)
        up.send_signal(signal.SIGKILL)
    assert emu("down", "x").returncode in (0, 7)
    emu.nothing_left()
    assert emu("up", str(emu.pair), "--name", "x").returncode == 0


def test_c5_a_kill_at_each_step_in_a_kernel(bare: Bare) -> None:
    inside(bare, "run('killed_at_every_step')")


def test_c6_what_is_of_others_and_named_alike_stays(bare: Bare) -> None:
    inside(bare, "run('others_are_untouched')")


def test_c7_two_clusters_from_one_file(emu: Commands) -> None:
    for name in ("x", "y"):
        assert emu("up", str(emu.pair), "--name", name).returncode == 0
    for name in ("x", "y"):
        assert emu("exec", "--cluster", name, "n0", "--", "ping", "-c", "1", "n1").returncode == 0
    assert emu("down", "x").returncode == 0
    assert emu.listed() == {"y": "up"}
    assert emu("exec", "n0", "--", "ping", "-c", "1", "n1").returncode == 0


def test_c8_the_first_message_is_as_fast_as_the_hundredth(emu: Commands) -> None:
    """No neighbour has to be found, no address to be checked: ping's first answer comes like the others."""
    assert emu("up", one_cable(emu, "delay: 10us"), "--name", "x", "--ideal").returncode == 0
    done = emu("exec", "n0", "--", "ping", "-c", "100", "-i", "0.01", "n1")
    times = [float(found) for found in re.findall(r"time=([0-9.]+) ms", done.stdout)]
    assert len(times) == 100
    assert times[0] <= 1.05 * max(times[1:])
    assert times[0] < 0.040


def test_c9_a_full_mesh_of_32_nodes(emu: Commands) -> None:
    """496 cables within the files that a user may open by default, and within a minute on any machine."""
    file = emu.base / "mesh.yaml"
    file.write_text(
        "name: mesh32\ndescription: d\nnodes: [{count: 32, prefix: n}]\n"
        "planes: {a: {shape: full-mesh, profile: thunderbolt5-rdma}}\n"
    )
    begin = time.monotonic()
    done = emu("up", str(file), "--ignore-ports", "--name", "x", "--json")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 60
    summary = json.loads(done.stdout)
    assert (summary["nodes"], summary["cables"]) == (32, 496)
    for pid in emu.processes():
        assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < 200
    assert emu("exec", "n0", "--", "ping", "-c", "1", "n31").returncode == 0


def test_c9_many_nodes_within_1024_open_files(bare: Bare) -> None:
    inside(bare, "run('many_nodes')")


@pytest.mark.parametrize(("link", "round_trip_us"), [("delay: 10us", 20), ("delay: 10us, b_to_a: {delay: 30us}", 40)])
def test_c10_a_delay_is_one_way(emu: Commands, link: str, round_trip_us: int) -> None:
    """The round trip is the two delays and what ping itself takes: its system calls, and its bits on the wire."""
    assert emu("up", one_cable(emu, link), "--name", "x", "--ideal").returncode == 0
    done = emu("exec", "n0", "--", "ping", "-c", "20", "-i", "0.01", "n1")
    times = [float(found) * 1000 for found in re.findall(r"time=([0-9.]+) ms", done.stdout)]
    assert len(times) == 20
    assert all(round_trip_us <= found < round_trip_us + 5 for found in times), times


def test_c11_a_rate_is_shown_as_set(emu: Commands) -> None:
    assert emu("up", one_cable(emu, "rate: 32Gbit/s"), "--name", "x").returncode == 0
    assert "32Gbit/s" in emu("topology", "show", one_cable(emu, "rate: 32Gbit/s")).stdout.replace(" ", "")
    assert bench(emu, "x", "--tokens", "5")["cables"][0]["a_to_b"]["held"]["rate_bps"] == 32 * 10**9
