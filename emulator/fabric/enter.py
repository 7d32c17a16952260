"""Puts the calling process into a node: a person's program into all that makes one, a workload's into its network."""

import os
from pathlib import Path

from emulator import linux
from emulator.errors import ClusterError, PlaceError
from emulator.fabric.namespace import namespace_path

_HOSTS = Path("/etc/hosts")


def enter_network(namespace: str) -> None:
    """Move the calling thread into a node's network namespace.

    Raises ClusterError where that has gone, PlaceError without root.
    """
    try:
        descriptor = os.open(namespace_path(namespace), os.O_RDONLY | os.O_CLOEXEC)
        try:
            linux.setns(descriptor, linux.CLONE_NEWNET)
        finally:
            os.close(descriptor)
    except PermissionError:
        raise PlaceError("entering a node needs root; use sudo, or run the cluster with --kernel guest") from None
    except OSError as error:
        raise ClusterError(f"namespace {namespace} has gone ({error.strerror}); see: emu ps") from None


def enter(node: str, namespace: str, hosts_file: Path | None, hostname: bool = True) -> None:
    """Move the calling process into a node, for good: call it in a child, with no other threads.

    It gets the node's network, a /sys that shows the node's interfaces, `hosts_file` as /etc/hosts, and its host name.
    Mounts made here are seen by this process and its children alone; what the host unmounts goes away here, too, so
    that no process keeps a namespace that was taken down.
    Raises as `enter_network` does, and PlaceError where a mount is refused.
    """
    enter_network(namespace)
    linux.unshare(linux.CLONE_NEWNS | (linux.CLONE_NEWUTS if hostname else 0))
    linux.mount("", "/", flags=linux.MS_SLAVE | linux.MS_REC)
    _mount("sysfs", "/sys", "sysfs")
    if hosts_file is not None:
        if not _HOSTS.exists():
            raise PlaceError(f"{_HOSTS} does not exist, so the nodes' names cannot be put there; run: touch {_HOSTS}")
        _mount(str(hosts_file), str(_HOSTS), flags=linux.MS_BIND)
    if hostname:
        linux.sethostname(node)


def _mount(source: str, target: str, kind: str = "none", flags: int = 0) -> None:
    try:
        linux.mount(source, target, kind, flags)
    except OSError as error:
        raise PlaceError(f"mounting {source} on {target}: {error.strerror}; see: emu doctor") from None
