"""The guest's file tree: the host's, read-only, with a /proc, /sys, /dev, /run, /tmp and /dev/shm of its own.

What a tmpfs hides and is still needed (an interpreter or a checkout below /tmp, the state directory below /run) is
mounted again in its place. Every mount of hostfs is a file system of its own that reads through to the directory named.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from emulator import linux

FRESH = ("/tmp", "/run", "/dev/shm")
"""Where the guest has a tmpfs instead of the host's files."""
OWN = ("/proc", "/sys", "/dev")
"""Where the guest has something else than files."""


def below(path: str, directories: Iterable[str]) -> bool:
    """Whether a path is one of the directories or in one."""
    return any(path == directory or path.startswith(directory + "/") for directory in directories)


def mount_guest(scratch: str, keep: Iterable[str]) -> None:
    """Mount what the guest has of its own, `scratch` writable, and what of `keep` the tmpfs file systems hide.

    All paths are real ones of the host (no symbolic links).
    """
    linux.mount("proc", "/proc", "proc")
    linux.mount("sysfs", "/sys", "sysfs")
    for directory in ("/dev/pts", "/dev/shm"):
        Path(directory).mkdir(exist_ok=True)
    linux.mount("devpts", "/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=0620,gid=5")
    for directory in FRESH:
        if Path(directory).is_dir():
            linux.mount("tmpfs", directory, "tmpfs", 0, "mode=0755" if directory == "/run" else "mode=1777")
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        with contextlib.suppress(FileExistsError):
            Path(f"/dev/{name}").symlink_to(f"/proc/self/fd{target}")
    for directory in sorted({path for path in keep if below(path, FRESH)}):  # parents come before what is in them
        if not Path(directory).is_dir():
            mount_host(directory, linux.MS_RDONLY)
    mount_host(scratch)


def mount_host(directory: str, flags: int = 0) -> None:
    """Mount a directory of the host in its place, writable unless `flags` says otherwise. Raises OSError."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    linux.mount("host", directory, "hostfs", flags, directory)


def mount_writable(directory: str) -> str | None:
    """Let the host's `directory` be written; returns why it cannot be."""
    if directory == "/":
        return "/ stays read-only in the guest; go to a directory of your own to write files"
    if below(directory, OWN) and not below(directory, FRESH):
        return f"{directory} is the guest's own, not the host's"
    try:
        mount_host(directory)
    except OSError as error:
        return f"{directory} stays read-only in the guest: {error.strerror}"
    return None
