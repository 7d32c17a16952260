"""`emu capture` and `emu top`: files that others read, stamped by the virtual clock, and counters."""

import json
from decimal import Decimal
from pathlib import Path

from tests.guest.test_commands import Emu, emu, state

__all__ = ["emu", "state"]

WIRE = Decimal("0.00000001")
"""Seconds: 98 bytes of a ping at 80 Gbit/s, 9.8 ns, rounded."""


def test_a_capture_is_read_by_scapy_and_exact(emu: Emu, tmp_path: Path) -> None:
    from scapy.layers.inet import ICMP
    from scapy.utils import PcapNgReader

    file = tmp_path / "n0.pcapng"
    assert emu("up", "mesh4-tb5-rdma", "--name", "c", "--ideal").returncode == 0
    words = ("capture", "n0", "--cable", "n0", "n1", "-w", str(file))
    done = emu(*words, "--", "ping", "-c", "3", "-i", "0.01", "n1")
    assert done.returncode == 0, done.stderr
    assert "3 received" in done.stderr
    with PcapNgReader(str(file)) as reader:
        frames = list(reader)
    assert [frame[ICMP].type for frame in frames] == [8, 0] * 3
    for request, reply in zip(frames[::2], frames[1::2], strict=True):
        # Both are stamped where they end: the reply has crossed one cable since the request came.
        assert Decimal(str(reply.time)) - Decimal(str(request.time)) == Decimal("0.00004") + WIRE
    again = emu(*words, "--count", "1")
    assert again.returncode == 2
    assert "File exists" in again.stderr
    link = tmp_path / "link.pcapng"
    link.symlink_to(tmp_path / "elsewhere")
    assert emu("capture", "n0", "-w", str(link), "--count", "1").returncode == 2
    assert not (tmp_path / "elsewhere").exists()

    top = emu("top", "--once")
    assert top.returncode == 0
    assert top.stdout.splitlines()[1].split()[:3] == ["n0", "n1", "a"]
    counted = json.loads(emu("top", "--once", "--json").stdout)[0]
    assert counted["a_to_b"]["traffic"]["packets"] == 3
    assert emu("top").returncode == 2
    assert emu("down", "c").returncode == 0


def test_a_capture_beside_a_run_ends_by_itself(emu: Emu, tmp_path: Path) -> None:
    file = tmp_path / "run.pcapng"
    assert emu("up", "mesh4-tb5-rdma", "--name", "c").returncode == 0
    done = emu("capture", "n1", "-w", str(file), "--seconds", "0.5", "--snaplen", "64")
    assert done.returncode == 0, done.stderr
    assert file.stat().st_size >= 28
    assert emu("down", "c").returncode == 0
