"""Where emu keeps what stands: one directory for each cluster, readable by its owner alone.

STATE/NAME/cluster.json   what it is (`Record`)
STATE/NAME/journal        what was made for it in a kernel
STATE/NAME/...            sockets and logs of a guest
STATE/NAME.lock           held while a command changes the cluster
"""

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from emulator.errors import ClusterError, StateError, UsageError
from emulator.plan.model import Plan

CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")

PlaceName = Literal["host", "guest"]
Clock = Literal["virtual", "real"]


class Record(msgspec.Struct, kw_only=True):
    """What is known of a standing cluster, and what `down` and `ps` read."""

    name: str
    topology_file: str
    place: PlaceName
    clock: Clock
    plan: Plan
    created: float
    """Seconds since 1970."""
    owner: int
    """User id."""
    seed: int
    ideal: bool
    pace: bool = False
    ready: bool = False
    """False while `up` is at work, and after an `up` that was killed."""
    built: Plan | None = None
    """The plan as it was built; None: `plan` is, since nothing was ever changed. `plan` is what is in force."""
    changing: bool = False
    """True while a command changes the cables, and after one that was killed: the kernel may hold old and new."""


def state_directory() -> Path:
    """The state directory of this user, made if need be: EMU_STATE_DIR, else /run/emu or the user's run-time directory.

    Raises StateError where it cannot be made or is another user's.
    """
    user = os.geteuid()
    if given := os.environ.get("EMU_STATE_DIR"):
        path = Path(given)
    elif user == 0:
        path = Path("/run/emu")
    elif runtime := os.environ.get("XDG_RUNTIME_DIR"):
        path = Path(runtime) / "emu"
    else:
        path = Path(f"/tmp/emu-{user}")
    if not path.is_absolute():
        raise StateError(f"EMU_STATE_DIR is {str(path)!r}; give an absolute path")
    with translated(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user:
        raise StateError(f"{path} is not a directory of this user; remove it or set EMU_STATE_DIR to one that is")
    if found.st_mode & 0o077:
        raise StateError(f"{path} is open to other users; run: chmod 700 {path}")
    return path


def cluster_directory(name: str) -> Path:
    """The directory of a cluster, whether it stands or not. Raises UsageError for a name that cannot be one."""
    if not CLUSTER_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be a cluster's name: write at most 63 letters, digits, '-', '_' and '.', "
            "beginning with a letter or digit"
        )
    return state_directory() / name


def names() -> list[str]:
    """The names of all clusters of this user, standing or half-made, in order."""
    directory = state_directory()
    with translated(directory):
        return sorted(
            entry.name
            for entry in directory.iterdir()
            if CLUSTER_NAME.fullmatch(entry.name) and entry.is_dir() and not entry.is_symlink()
        )


def read(name: str) -> Record:
    """The record of a cluster. Raises ClusterError where there is none, StateError where it cannot be read."""
    path = cluster_directory(name) / "cluster.json"
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        standing = ", ".join(names()) or "none"
        raise ClusterError(f"no cluster {name!r} stands (standing: {standing}); see: emu ps") from None
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}") from None
    try:
        return msgspec.json.decode(data, type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StateError(f"{path} is damaged ({error}); remove the cluster with: emu down {name}") from None


def write(record: Record) -> None:
    """Write a cluster's record, in one piece. Raises StateError on a full disk."""
    path = cluster_directory(record.name) / "cluster.json"
    aside = path.with_suffix(".new")
    with translated(path):
        aside.write_bytes(msgspec.json.encode(record))
        aside.replace(path)


@contextlib.contextmanager
def locked(name: str, wait: float = 30.0) -> Iterator[None]:
    """Hold a cluster against other commands. Raises ClusterError after `wait` seconds of another command's work."""
    directory = cluster_directory(name)
    path = directory.with_name(f"{name}.lock")
    descriptor = _lock(path, time.monotonic() + wait)
    if descriptor is None:
        raise ClusterError(
            f"another command has been at work on cluster {name!r} for {wait:.0f} s; wait for it or end it"
        )
    try:
        yield
    finally:
        if not directory.exists():
            path.unlink(missing_ok=True)
        os.close(descriptor)


def sweep() -> None:
    """Remove the locks that killed commands left of clusters that are not there."""
    for path in state_directory().glob("*.lock"):
        name = path.name.removesuffix(".lock")
        if CLUSTER_NAME.fullmatch(name) and not path.with_name(name).exists():
            with contextlib.suppress(ClusterError), locked(name, wait=0):
                pass  # whoever lets go of a lock without a cluster removes it


@contextlib.contextmanager
def alone(name: str) -> Iterator[None]:
    """Hold a cluster against other measured runs, which would share its cables: they wait until this one has ended.

    Raises ClusterError where the cluster is taken down meanwhile.
    """
    directory = cluster_directory(name)
    gone = ClusterError(f"cluster {name!r} was taken down meanwhile; see: emu ps")
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise gone from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not os.fstat(descriptor).st_nlink:
            raise gone
        yield
    finally:
        os.close(descriptor)


def _lock(path: Path, end: float) -> int | None:
    """A descriptor that holds the lock file; None when it is `end` and another process still does."""
    while True:
        with translated(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it before may have removed it together with its cluster: then it is no lock any more.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(path.stat(), os.fstat(descriptor)):
                    return descriptor
        except BlockingIOError:
            if time.monotonic() > end:
                os.close(descriptor)
                return None
            time.sleep(0.05)
        os.close(descriptor)


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn an OSError about a file of ours into a StateError that says what to do."""
    try:
        yield
    except OSError as error:
        advice = {
            errno.ENOSPC: "free some space or set EMU_STATE_DIR to another directory",
            errno.EDQUOT: "free some space or set EMU_STATE_DIR to another directory",
            errno.EROFS: "set EMU_STATE_DIR to a directory that can be written",
            errno.EACCES: "set EMU_STATE_DIR to a directory of your own",
            errno.EPERM: "set EMU_STATE_DIR to a directory of your own",
        }.get(error.errno or 0, "check the state directory")
        raise StateError(f"{error.filename or path}: {error.strerror}; {advice}") from None
