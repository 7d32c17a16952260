"""The commands as a person calls them: as root and as an ordinary user, on both kernels, and killed at any step."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator.spec.shipped import shipped

PROFILES = sorted(shipped("profile"))
NOBODY = 65534
HEADERS = 66
"""Bytes: Ethernet 14, IPv4 20, TCP with its timestamps 32."""

Emu = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def emu(state: Path, kernel: Path) -> Iterator[Emu]:
    """Calls the command line with a state directory of its own; whatever stands at the end is taken down."""
    del kernel  # It has to be built.

    def call(*words: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "EMU_STATE_DIR": str(state), **options.pop("env", {})}
        return subprocess.run(
            [sys.executable, "-m", "emulator", *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
            **options,
        )

    yield call
    call("down", "--all")
    assert sorted(path.name for path in state.glob("*")) == []


def result(done: "subprocess.CompletedProcess[str]") -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def one_cable(directory: Path, profile: str) -> str:
    file = directory / "one.yaml"
    file.write_text(
        "name: one\ndescription: two nodes and a cable\nnodes: [{count: 2, prefix: n}]\n"
        f"planes: {{a: {{shape: line, profile: {profile}}}}}\n"
    )
    return str(file)


@pytest.mark.parametrize(("topology", "hop_us"), [("mesh4-tb5-tcp", 300), ("mesh4-tb5-rdma", 40)])
def test_three_exchanges_cost_what_the_documents_say_and_serialisation(emu: Emu, topology: str, hop_us: int) -> None:
    token = result(emu("bench", topology, "--ideal", "--json"))["token_time_ns"]
    wire = (14336 + 2 * HEADERS) * 8 / 80
    assert token["p50"] == pytest.approx(3 * (hop_us * 1000 + wire), rel=0.0005)
    assert token["p99"] == token["p50"]


def test_two_runs_are_equal_with_jitter_and_another_seed_is_another_run(emu: Emu) -> None:
    times = [
        result(emu("bench", "mesh4-tb5-rdma", "--json", "--seed", seed))["token_time_ns"] for seed in ("1", "1", "2")
    ]
    assert times[0] == times[1] != times[2]


def test_runs_with_large_messages_to_several_nodes_at_once_are_equal_too(emu: Emu) -> None:
    for topology, *words in (
        ("mesh4-tb5-rdma", "--workload", "all-reduce-mesh", "--set", "payload=256KiB", "--tokens", "10"),
        ("dual-plane-8", "--workload", "aggregate", "--tokens", "100"),
    ):
        first, *others = (result(emu("bench", topology, *words, "--json"))["token_time_ns"] for _ in range(4))
        assert others == [first] * 3


@pytest.mark.parametrize("profile", PROFILES)
def test_a_small_exchange_takes_delay_and_serialisation(emu: Emu, tmp_path: Path, profile: str) -> None:
    words = ("--ideal", "--json", "--tokens", "300", "--set", "payload=64B", "--set", "parameters.exchanges=1")
    run = result(emu("bench", one_cable(tmp_path, profile), *words))
    cable = run["cables"][0]["a_to_b"]["requested"]
    asked = cable["delay_ns"] + (64 + HEADERS) * 8 * 1e9 / cable["rate_bps"]
    assert abs(run["exchange_delay_ns"]["p50"] - asked) <= 20 + 0.0002 * asked
    assert run["exchange_delay_ns"]["p99"] == run["exchange_delay_ns"]["p50"]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_full_cable_carries_its_rate_and_drops_nothing(emu: Emu, tmp_path: Path, profile: str) -> None:
    run = result(emu("bench", one_cable(tmp_path, profile), "--ideal", "--json", "--workload", "bulk"))
    cable, mtu = run["cables"][0]["a_to_b"], run["cables"][0]["mtu"]
    carried = run["payload_bytes"] * 8e9 / run["token_time_ns"]["p50"] / cable["requested"]["rate_bps"]
    # What headers leave of the rate: 99.3 % with packets of 9000 bytes, 95.6 % with 1500. Nor is it more than asked.
    room = (mtu - HEADERS + 14) / (mtu + 14)
    assert room * 0.9925 <= carried <= room
    assert cable["traffic"]["drops"] == cable["traffic"]["receive_drops"] == 0


def test_a_cluster_stands_until_it_is_taken_down(emu: Emu) -> None:
    assert emu("up", "mesh4-tb5-rdma", "--name", "lab").returncode == 0
    assert emu("up", "mesh4-tb5-rdma", "--name", "other").returncode == 0
    assert [(one["name"], one["state"]) for one in json.loads(emu("ps", "--json").stdout)] == [
        ("lab", "up"),
        ("other", "up"),
    ]
    assert emu("exec", "--cluster", "lab", "n0", "--", "sh", "-c", "cat; exit 5", input="hello").stdout == "hello"
    assert emu("exec", "--cluster", "lab", "n0", "--", "sh", "-c", "exit 5").returncode == 5
    assert "n3" in emu("exec", "--cluster", "lab", "n0", "--", "getent", "hosts", "n3").stdout
    assert result(emu("bench", "lab", "--json", "--tokens", "20"))["tokens"] == 20
    assert emu("up", "mesh4-tb5-rdma", "--name", "lab").returncode == 7
    assert emu("down", "lab").returncode == 0
    assert emu("exec", "n0", "--", "true").returncode == 0
    assert emu("down").returncode == 0
    assert emu("ps").stdout == "no cluster stands; build one with: emu up TOPOLOGY\n"


def test_a_killed_up_is_taken_down_and_comes_up_again(emu: Emu, state: Path) -> None:
    """kill -9 before and after each line of the journal, until `up` gets past the last one."""
    for step in range(100):
        killed = emu("up", "mesh4-tb5-rdma", "--name", "k", env={"EMU_TEST_KILL_AT_STEP": str(step)})
        assert killed.returncode in (0, -signal.SIGKILL), killed.stderr
        assert emu("down", "k").returncode == 0
        assert list(state.iterdir()) == []
        assert processes_of(state) == []
        if killed.returncode == 0:
            break
    assert step >= 2
    assert emu("up", "mesh4-tb5-rdma", "--name", "k").returncode == 0


def processes_of(state: Path) -> list[int]:
    """Processes that have the state directory on their command line or as a socket's or file's path."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str(state).encode() in (entry / "cmdline").read_bytes() and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


HOST_KERNEL = """
import json, os, subprocess, sys
from pathlib import Path
def emu(*words, **env):
    command = [sys.executable, "-m", "emulator", *words]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
def left():
    return sorted(name for name in os.listdir("/run/netns") if name.startswith("emu-h-"))
assert "host kernel, real clock: root, and this kernel has netem" in emu("up", "mesh4-tb5-rdma", "--name", "h").stdout
assert emu("exec", "n0", "--", "sh", "-c", "hostname; exit 3").stdout == "n0\\n"
assert emu("exec", "n0", "--", "sh", "-c", "exit 3").returncode == 3
assert emu("exec", "n0", "--", "ping", "-c", "2", "-i", "0.01", "n3").returncode == 0
run = json.loads(emu("bench", "h", "--json", "--tokens", "50").stdout)
assert (run["kernel"], run["clock"], run["tokens"]) == ("host", "real", 50), run
assert run["token_time_ns"]["min"] > 3 * 30_000
assert len(left()) == 4
assert emu("down", "h").returncode == 0
assert left() == []
for step in range(200):
    killed = emu("up", "cost-2", "--name", "h", EMU_TEST_KILL_AT_STEP=str(step))
    assert killed.returncode in (0, -9), killed.stderr
    down = emu("down", "h")
    assert down.returncode == 0, down.stderr
    assert left() == [] and os.listdir("/run/inside") == []
    if killed.returncode == 0:
        break
assert step > 4, step
assert emu("up", "cost-2", "--name", "h").returncode == 0
assert emu("down").returncode == 0
print("steps", step)
"""


def test_the_host_kernel_path_inside_a_guest_on_the_real_clock(emu: Emu, tmp_path: Path) -> None:
    """The guest has root and netem: the code for the kernel of a host runs in it, and is killed at each step."""
    assert emu("up", "cost-2", "--clock", "real", "--name", "outer").returncode == 0
    script = tmp_path / "inside.py"
    script.write_text(HOST_KERNEL)
    root = str(Path(__file__).parents[2])
    inside = {"PYTHONPATH": root, "EMU_STATE_DIR": "/run/inside"}
    words = (
        "exec",
        "n0",
        "--",
        "env",
        *(f"{key}={value}" for key, value in inside.items()),
        sys.executable,
        str(script),
    )
    done = emu(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("steps ")


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_an_ordinary_user_does_the_same() -> None:
    home = Path(tempfile.mkdtemp(prefix="emu-user-"))
    os.chown(home, NOBODY, NOBODY)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "EMU_STATE_DIR": str(home / "state")}

    def emu(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "emulator", *words],
            env=environment,
            cwd=home,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=100,
        )

    try:
        up = emu("up", "mesh4-tb5-rdma")
        assert up.returncode == 0, up.stderr
        assert "guest kernel, virtual clock: not root" in up.stdout
        written = emu("exec", "n0", "--", "sh", "-c", "id -u; echo from inside > written")
        assert written.returncode == 0, written.stderr
        assert (home / "written").read_text() == "from inside\n"
        assert (home / "written").stat().st_uid == NOBODY
        bench = emu("bench", "mesh4-tb5-rdma", "--json")
        assert json.loads(bench.stdout)["clock"] == "virtual", bench.stderr
        assert emu("down").returncode == 0
        assert list((home / "state").iterdir()) == []
    finally:
        shutil.rmtree(home)


def test_what_is_wrong_has_its_own_exit_code_and_says_what_to_do(emu: Emu, tmp_path: Path) -> None:
    def bad(text: str) -> str:
        file = tmp_path / "bad.yaml"
        file.write_text(text)
        return str(file)

    cases = [
        (("bench", "mesh4-tb5"), 3, "did you mean"),
        (("bench", "mesh4-tb5-rdma", "--workload", "chains"), 3, "unknown workload"),
        (("bench", "mesh4-tb5-rdma", "--set", "payload=64"), 3, "has no unit"),
        (("bench", "mesh8-tb5-rdma"), 4, "--ignore-ports"),
        (("up", bad("nodes: [")), 3, "is not YAML"),
        (("up", "mesh4-tb5-rdma", "--name", "a/b"), 2, "letters, digits"),
        (("exec", "n0", "--", "true"), 7, "no cluster stands"),
        (("down", "nothing"), 7, "no cluster 'nothing' stands"),
        (("bench", "mesh4-tb5-rdma", "--memory", "3"), 2, "--memory"),
        (("bench", "mesh4-tb5-rdma", "--kernel", "host", "--clock", "virtual"), 2, "no virtual clock"),
    ]
    for words, status, message in cases:
        done = emu(*words)
        assert (done.returncode, message in done.stderr) == (status, True), (words, done.returncode, done.stderr)
        assert "Traceback" not in done.stderr


def test_a_full_or_foreign_state_directory_is_said(emu: Emu, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,mode=700", "none", str(small)], check=True)
    try:
        (small / "filling").write_bytes(bytes(4096))
        done = emu("up", "mesh4-tb5-rdma", env={"EMU_STATE_DIR": str(small)})
        assert (done.returncode, "space" in done.stderr) == (12, True), done.stderr
        assert [path.name for path in small.iterdir()] == ["filling"]
    finally:
        subprocess.run(["umount", str(small)], check=True)
    small.chmod(0o755)
    assert emu("ps", env={"EMU_STATE_DIR": str(small)}).returncode == 12
