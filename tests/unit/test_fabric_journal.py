"""The journal's file, and what teardown does without any privilege. With namespaces it is tested in a guest."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from emulator.errors import StateError
from emulator.fabric.journal import (
    CableEntry,
    Journal,
    NamespaceEntry,
    PathEntry,
    ProcessEntry,
    read,
    start_time,
)
from emulator.fabric.teardown import Report, teardown

CABLE = CableEntry(name="m:a-b", namespaces=("x", "y"), interfaces=("m-b", "m-a"))


def test_identity_takes_the_place_of_the_announcement(tmp_path: Path) -> None:
    known = NamespaceEntry(path="/run/netns/x", device=4, inode=5, cookie=6)
    with Journal(tmp_path / "journal") as journal:
        journal.write([NamespaceEntry(path="/run/netns/x")])
        journal.write([CABLE, ProcessEntry(purpose="node a", pid=1, start_time=2)])
        journal.write([known])
    assert read(tmp_path / "journal") == [known, CABLE, ProcessEntry(purpose="node a", pid=1, start_time=2)]


def test_torn_line_is_left_out_and_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.write([CABLE])
    with path.open("ab") as file:
        file.write(b'{"make":"path","pa')
    assert read(path) == [CABLE]
    with Journal(path) as journal:
        journal.write([PathEntry(path="/x")])
    assert read(path) == [CABLE, PathEntry(path="/x")]


def test_two_processes_write_one_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path) as first, Journal(path) as second:
        for number in range(100):
            first.write([PathEntry(path=f"/a{number}")])
            second.write([PathEntry(path=f"/b{number}")])
    assert len(read(path)) == 200


def test_full_disk_is_a_state_error() -> None:
    with Journal(Path("/dev/full")) as journal, pytest.raises(StateError, match=r"No space left.*free some space"):
        journal.write([CABLE])


def test_journal_that_cannot_be_made_is_a_state_error(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="No such file"):
        Journal(tmp_path / "missing" / "journal")
    with pytest.raises(StateError, match="directory"):
        read(tmp_path)


@pytest.mark.parametrize(("step", "lines"), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2)])
def test_kill_at_a_step(tmp_path: Path, step: int, lines: int) -> None:
    path = tmp_path / "journal"
    code = (
        "import sys; from pathlib import Path; from emulator.fabric.journal import Journal, PathEntry\n"
        f"journal = Journal(Path({str(path)!r}))\n"
        "for name in '/a', '/b': journal.write([PathEntry(path=name)])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "EMU_TEST_KILL_AT_STEP": str(step)}, check=False
    )
    assert ended.returncode == (-signal.SIGKILL if step < 4 else 0)
    assert len(read(path)) == lines


def test_teardown_without_a_journal_does_nothing(tmp_path: Path) -> None:
    assert teardown(tmp_path / "journal") == Report()


def test_teardown_removes_files_and_directories_in_reverse_order(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    made = tmp_path / "made"
    with Journal(path) as journal:
        for entry in (made, made / "file", tmp_path / "never"):
            journal.write([PathEntry(path=str(entry))])
        made.mkdir()
        (made / "file").touch()
    assert teardown(path) == Report(paths=2)
    assert not made.exists()
    assert not path.exists()


def test_what_cannot_be_removed_is_told_and_the_journal_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    made = tmp_path / "made"
    made.mkdir()
    (made / "of another").touch()
    with Journal(path) as journal:
        journal.write([PathEntry(path=str(made))])
    assert teardown(path).left == [f"{made}: Directory not empty"]
    (made / "of another").unlink()
    assert teardown(path) == Report(paths=1)
    assert not path.exists()


def test_file_of_another_identity_stays(tmp_path: Path) -> None:
    path, file = tmp_path / "journal", tmp_path / "file"
    file.touch()
    with Journal(path) as journal:
        journal.write([PathEntry(path=str(file), device=file.stat().st_dev, inode=file.stat().st_ino + 1)])
    assert teardown(path) == Report()
    assert file.exists()


def test_teardown_ends_a_process_and_none_that_got_its_pid(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    ours, other = (subprocess.Popen(["sleep", "1000"]) for _ in range(2))
    try:
        born = start_time(ours.pid)
        assert born is not None
        with Journal(path) as journal:
            journal.write([ProcessEntry(purpose="ours", pid=ours.pid, start_time=born)])
            journal.write([ProcessEntry(purpose="ended", pid=other.pid, start_time=born - 1)])
            journal.write([ProcessEntry(purpose="never started")])
        assert teardown(path) == Report(processes=1)
        assert ours.wait() == -signal.SIGTERM
        assert other.poll() is None
    finally:
        for process in (ours, other):
            process.kill()
            process.wait()


def test_process_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    stubborn = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done"], stdout=subprocess.PIPE)
    assert stubborn.stdout is not None
    stubborn.stdout.readline()
    with Journal(path) as journal:
        journal.write([ProcessEntry(purpose="stubborn", pid=stubborn.pid, start_time=start_time(stubborn.pid))])
    assert teardown(path, grace_s=0.1).processes == 1
    assert stubborn.wait() == -signal.SIGKILL
    stubborn.stdout.close()


def test_start_time_of_no_process() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert start_time(ended.pid) is None
