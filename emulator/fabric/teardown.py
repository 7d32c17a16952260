"""Takes a cluster down from its journal alone, whatever state a kill left it in, and touches nothing else."""

import contextlib
import os
import select
import signal
import stat
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from emulator import linux
from emulator.errors import StateError
from emulator.fabric.journal import MountEntry, NamespaceEntry, PathEntry, ProcessEntry, read, start_time
from emulator.fabric.namespace import cookie


class Report(msgspec.Struct, kw_only=True):
    """What was taken down, and what could not be."""

    processes: int = 0
    namespaces: int = 0
    mounts: int = 0
    paths: int = 0
    left: list[str] = []
    """A sentence for each thing that is still there. The journal is kept then, for another try."""


def teardown(journal_path: Path, grace_s: float = 2.0) -> Report:
    """End the processes, remove the namespaces, mounts and files of a journal, then the journal. May be called again.

    A process is ended by SIGTERM, and by SIGKILL after `grace_s`. Whatever has another identity than the one recorded
    is not of this journal, and stays. Raises StateError where the journal cannot be read or removed.
    """
    entries = read(journal_path)
    report = Report()
    namespaces = [entry for entry in entries if isinstance(entry, NamespaceEntry) and _is(entry)]
    recorded = [entry for entry in entries if isinstance(entry, ProcessEntry)]
    report.processes = _end_processes(recorded, namespaces, grace_s, report.left)
    for entry in reversed(entries):
        try:
            if isinstance(entry, MountEntry):
                report.mounts += _unmount(entry)
            elif isinstance(entry, NamespaceEntry):
                report.namespaces += _remove_namespace(entry)
            elif isinstance(entry, PathEntry):
                report.paths += _remove_path(entry)
        except OSError as error:
            report.left.append(f"{getattr(entry, 'path', '')}: {error.strerror}")
    if not report.left:
        try:
            journal_path.unlink(missing_ok=True)
        except OSError as error:
            raise StateError(f"{journal_path}: {error.strerror}; remove it by hand, all else is done") from None
    return report


def _is(entry: NamespaceEntry | PathEntry | MountEntry) -> bool:
    """Whether what is at the path now is what was made."""
    try:
        found = Path(entry.path).stat()
        if (found.st_dev, found.st_ino) != (entry.device, entry.inode):
            return False
        return not isinstance(entry, NamespaceEntry) or _cookie(entry.path) == entry.cookie
    except OSError:
        return False


def _cookie(path: str) -> int | None:
    with linux.network_namespace_kept():
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            linux.setns(descriptor, linux.CLONE_NEWNET)
        finally:
            os.close(descriptor)
        return cookie()


def _remove_namespace(entry: NamespaceEntry) -> int:
    if _is(entry):
        linux.umount2(entry.path, linux.MNT_DETACH)
        Path(entry.path).unlink()
        return 1
    # Between the making of the file and its becoming a namespace: an empty file on which nothing is mounted.
    with contextlib.suppress(FileNotFoundError):
        found = Path(entry.path).stat()
        if entry.inode is not None and stat.S_ISREG(found.st_mode) and not found.st_size and not _is_nsfs(found):
            Path(entry.path).unlink()
    return 0


def _is_nsfs(found: os.stat_result) -> bool:
    return found.st_dev == Path("/proc/self/ns/net").stat().st_dev


def _unmount(entry: MountEntry) -> int:
    table = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    # Spaces and the like stand there as octal escapes.
    points = {line.split()[4].encode().decode("unicode_escape") for line in table.splitlines()}
    if entry.path not in points or (entry.inode is not None and not _is(entry)):
        return 0
    linux.umount2(entry.path, linux.MNT_DETACH)
    return 1


def _remove_path(entry: PathEntry) -> int:
    if entry.inode is not None and not _is(entry):
        return 0
    try:
        mode = Path(entry.path).lstat().st_mode
    except FileNotFoundError:
        return 0
    if stat.S_ISDIR(mode):
        Path(entry.path).rmdir()
    else:
        Path(entry.path).unlink()
    return 1


def _end_processes(
    recorded: Iterable[ProcessEntry], namespaces: Iterable[NamespaceEntry], grace_s: float, left: list[str]
) -> int:
    """End the recorded processes and all that are in one of the namespaces, and return how many there were.

    Only namespaces that their file still holds: the inode of one that has gone may be another's by now.
    """
    inodes = {(entry.device, entry.inode) for entry in namespaces}
    mine = {(entry.pid, entry.start_time) for entry in recorded if entry.pid is not None}
    ended: set[tuple[int, int | None]] = set()
    end = time.monotonic() + grace_s
    for number in (signal.SIGTERM, signal.SIGKILL):
        while True:
            # Again until none is found: a process may have had a child meanwhile.
            found = dict(_processes(mine, inodes))
            ended.update((pid, start_time(pid)) for pid in found)
            try:
                for descriptor in found.values():
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(descriptor, number)
                _wait(found.values(), end)
            finally:
                for descriptor in found.values():
                    os.close(descriptor)
            if not found:
                return len(ended)
            if time.monotonic() >= end:
                break
        end = time.monotonic() + grace_s
    left.extend(f"process {pid} does not end" for pid in found)
    return len(ended)


def _processes(
    mine: set[tuple[int, int | None]] | set[tuple[int | None, int | None]], inodes: set[tuple[int | None, int | None]]
) -> Iterable[tuple[int, int]]:
    """The pid and an open pidfd of each process that is to end."""
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit() or (pid := int(directory.name)) == os.getpid():
            continue
        descriptor = -1
        try:
            # Opened before it is looked at: what is looked at is then what the signal goes to.
            descriptor = os.pidfd_open(pid)
            inside = (directory / "ns/net").stat()
            if (inside.st_dev, inside.st_ino) in inodes or (pid, start_time(pid)) in mine:
                yield pid, descriptor
                descriptor = -1
        except OSError:
            continue
        finally:
            if descriptor >= 0:
                os.close(descriptor)


def _wait(descriptors: Iterable[int], end: float) -> None:
    """Until all of these processes have ended, or the time has come."""
    poll = select.poll()
    waiting = set(descriptors)
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN)
    while waiting and (rest := end - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(rest * 1000):
            poll.unregister(descriptor)
            waiting.discard(descriptor)
