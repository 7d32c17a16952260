"""The journal: one line of JSON for each thing, written before it is made, and once more when its identity is known.

`Journal` writes, `read` reads, `teardown.teardown` takes down. Lines are written in append mode, whole, so that several
processes may write one journal, and a kill leaves at most the last line torn.

Tests kill the writer at a step of their choice: EMU_TEST_KILL_AT_STEP=2N does it before the Nth write (the step before
is done, the next not yet announced), 2N+1 after it (announced, not yet done). N counts from 0.
"""

import os
import signal
from collections.abc import Iterable
from pathlib import Path

import msgspec

from emulator.errors import StateError


class Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="make", omit_defaults=True):
    """Something made outside the memory of emu. None in a field: not known yet."""


class NamespaceEntry(Entry, frozen=True, kw_only=True, tag="namespace"):
    """A network namespace, bound onto a file that did not exist before."""

    path: str
    device: int | None = None
    inode: int | None = None
    """Of the namespace, not of the file below. Always known before the file is made."""
    cookie: int | None = None
    """The kernel's number for it, never given twice, unlike inodes; None: a kernel before 5.14."""


class CableEntry(Entry, frozen=True, kw_only=True, tag="cable"):
    """A veth pair. It ends with the namespaces that its ends are in."""

    name: str
    namespaces: tuple[str, str]
    interfaces: tuple[str, str]


class ProcessEntry(Entry, frozen=True, kw_only=True, tag="process"):
    """A process. Let it wait for a word from its parent until the line with its pid is written, or set PDEATHSIG."""

    purpose: str
    pid: int | None = None
    start_time: int | None = None
    """In clock ticks since boot: `start_time(pid)`. With it a pid that was given to another process is recognised."""


class PathEntry(Entry, frozen=True, kw_only=True, tag="path"):
    """A file, or a directory that is empty by the time it is removed."""

    path: str
    device: int | None = None
    inode: int | None = None


class MountEntry(Entry, frozen=True, kw_only=True, tag="mount"):
    """A mount."""

    path: str
    device: int | None = None
    inode: int | None = None
    """Of the root of what is mounted."""


AnyEntry = NamespaceEntry | CableEntry | ProcessEntry | PathEntry | MountEntry


class Journal:
    """Appends to a journal file, which is made if need be. Raises StateError where that cannot be done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kill_at = int(os.environ.get("EMU_TEST_KILL_AT_STEP", -1))
        self._writes = 0
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            size = os.fstat(self._descriptor).st_size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                self._write(b"\n")  # Ends the line that a kill tore.
        except OSError as error:
            raise _state_error(path, error) from None

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._descriptor)

    def write(self, entries: Iterable[AnyEntry]) -> None:
        """Record in one write what is about to be made, or what was. Raises StateError on a full disk."""
        data = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        if not data:
            return
        if self._kill_at == 2 * self._writes:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            self._write(data)
        except OSError as error:
            raise _state_error(self.path, error) from None
        if self._kill_at == 2 * self._writes + 1:
            os.kill(os.getpid(), signal.SIGKILL)
        self._writes += 1

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]


def read(path: Path) -> list[AnyEntry]:
    """All entries in order, a line with the identity in place of the earlier one without. Torn lines are left out.

    No such file: no entries. Raises StateError where it cannot be read.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _state_error(path, error) from None
    found: dict[tuple[str, object], AnyEntry] = {}
    for line in lines:
        try:
            entry = msgspec.json.decode(line, type=AnyEntry)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if "\0" not in getattr(entry, "path", ""):  # no file's name: another wrote this line
            found[_key(entry)] = entry
    return list(found.values())


def _key(entry: AnyEntry) -> tuple[str, object]:
    match entry:
        case CableEntry():
            return "cable", entry.name
        case ProcessEntry():
            return "process", (entry.purpose, entry.pid, entry.start_time)
        case NamespaceEntry() | PathEntry() | MountEntry():
            return type(entry).__name__, entry.path


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot (proc_pid_stat(5), field 22); None: it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _state_error(path: Path, error: OSError) -> StateError:
    return StateError(f"{path}: {error.strerror}; free some space, or use a directory that you can write to")
