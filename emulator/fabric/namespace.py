"""Network namespaces as `ip netns` keeps them: each bound onto a file of its name below /run/netns."""

import errno
import os
import socket
import sys
from pathlib import Path

from emulator import linux
from emulator.errors import ClusterError, FabricError, PlaceError
from emulator.fabric.journal import Journal, NamespaceEntry
from emulator.plan.model import Node

DIRECTORY = Path("/run/netns")
_SO_NETNS_COOKIE = 71


def namespace_path(namespace: str) -> Path:
    """The file that holds a namespace."""
    return DIRECTORY / namespace


def share_directory() -> None:
    """Make /run/netns a shared mount, as `ip netns add` does, so that bound files show in every mount namespace.

    Left as it is at the end, as iproute2 leaves it: others may have namespaces there.
    """
    try:
        DIRECTORY.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            linux.mount("", str(DIRECTORY), flags=linux.MS_SHARED | linux.MS_REC)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # Not a mount yet.
            linux.mount(str(DIRECTORY), str(DIRECTORY), flags=linux.MS_BIND | linux.MS_REC)
            linux.mount("", str(DIRECTORY), flags=linux.MS_SHARED | linux.MS_REC)
    except PermissionError:
        raise PlaceError("making namespaces needs root; use sudo, or run with --kernel guest") from None
    except OSError as error:
        raise FabricError(f"{DIRECTORY}: {error.strerror}; let it be a directory that mounts can be made on") from None


def make(node: Node, journal: Journal) -> None:
    """Put the calling thread into a new namespace, and bind that to the node's file.

    The journal knows the file before the namespace is there, and the namespace before the file is there: whatever else
    is found at the file's place is another's.
    """
    path = str(namespace_path(node.namespace))
    journal.write([NamespaceEntry(path=path)])
    try:
        linux.unshare(linux.CLONE_NEWNET)
        made = Path("/proc/thread-self/ns/net").stat()
        journal.write([NamespaceEntry(path=path, device=made.st_dev, inode=made.st_ino, cookie=cookie())])
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444))
        linux.mount("/proc/thread-self/ns/net", path, flags=linux.MS_BIND)
    except FileExistsError:
        raise ClusterError(f"namespace {node.namespace} stands already; choose another --name") from None
    except OSError as error:
        hint = "use sudo, or run with --kernel guest" if error.errno == errno.EPERM else "see: emu doctor"
        raise FabricError(f"node {node.name}: namespace {node.namespace}: {error.strerror}; {hint}") from None


def cookie() -> int | None:
    """The number of the calling thread's network namespace, unique until the next boot; None: a kernel before 5.14."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as any_socket:
        try:
            return int.from_bytes(any_socket.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8), sys.byteorder)
        except OSError:
            return None


def write_sysctls(node: Node) -> None:
    """Write a node's sysctls in the calling thread's namespace, and read each back.

    Raises FabricError for one that this kernel lacks, or holds otherwise than asked.
    """
    for name, value in node.sysctls.items():
        path = "/proc/sys/" + name.replace(".", "/")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.write(descriptor, value.encode())
                held = os.pread(descriptor, 4096, 0).decode()
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            if name.startswith("net.ipv6.") and name.endswith(".disable_ipv6") and value == "1":
                continue  # A kernel without IPv6 has it off.
            raise FabricError(f"node {node.name}: this kernel has no sysctl {name} in a namespace") from None
        except OSError as error:
            raise FabricError(f"node {node.name}: sysctl {name} = {value}: {error.strerror}") from None
        if held.split() != value.split():
            raise FabricError(f"node {node.name}: sysctl {name} holds {held.strip()!r} where {value!r} was asked for")
