"""The connections of a workload, made before its processes: a socket belongs to the namespace it was made in, wherever
it is used. So one process makes them all in a row, and each node's process inherits its own."""

import os
import resource
import socket
from pathlib import Path

from emulator.errors import WorkloadError
from emulator.fabric.namespace import namespace_path
from emulator.linux import CLONE_NEWNET, network_namespace_kept, setns
from emulator.plan.model import Plan
from emulator.workload.program import Program

SO_SNDBUFFORCE = 32
"""asm-generic/socket.h; beyond net.core.wmem_max, which is not one of a namespace's own values."""
SO_RCVBUFFORCE = 33
SLACK_BYTES = 256 << 10
LARGEST_BUFFER_BYTES = (1 << 30) - 1
"""What the socket option takes; TCP has no larger window either (RFC 7323)."""

Sockets = list[dict[int, socket.socket]]
"""Of each node, by index of the connection."""


def connect(program: Program, namespaces: list[int]) -> Sockets:
    """All connections of `program`; `namespaces` are descriptors, one for each node. Raises WorkloadError."""
    _allow_files(2 * len(program.connections) + 4 * len(program.team.nodes) + 256)
    if not (program.protocol and program.protocol.user_space):
        _check_memory(program)
    size = buffer_bytes(program)
    listeners: dict[tuple[int, str], socket.socket] = {}
    sockets: Sockets = [{} for _ in program.team.nodes]
    with network_namespace_kept():
        for node, namespace in enumerate(namespaces):
            setns(namespace, CLONE_NEWNET)
            for address in {c.address for c in program.connections if c.b == node}:
                listeners[node, address] = _listen(address, size)
        for node, namespace in enumerate(namespaces):
            setns(namespace, CLONE_NEWNET)
            for number, connection in enumerate(program.connections):
                if connection.a == node:
                    listener = listeners[connection.b, connection.address]
                    try:
                        ends = _join(listener, size)
                    except OSError as error:
                        a, b = program.team.nodes[connection.a], program.team.nodes[connection.b]
                        reason = f"{a} cannot reach {b} at {connection.address}: {error}"
                        raise WorkloadError(f"{reason}; look at the cluster with `emu exec`") from None
                    sockets[connection.a][number], sockets[connection.b][number] = ends
    for listener in listeners.values():
        listener.close()
    return sockets


def namespace_descriptors(plan: Plan, nodes: tuple[str, ...]) -> list[int]:
    """An open descriptor of each node's network namespace. Raises WorkloadError where one is gone."""
    found: list[int] = []
    for node in nodes:
        try:
            found.append(os.open(namespace_path(plan.node(node).namespace), os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            for descriptor in found:
                os.close(descriptor)
            raise WorkloadError(f"the namespace of {node} is gone ({error}); take the cluster down and up") from None
    return found


def buffer_bytes(program: Program) -> int:
    """Enough for the full rate, and for what nodes send before they receive; little enough for the queue of a cable."""
    in_flight = max(connection.in_flight_bytes for connection in program.connections)
    return min(2 * in_flight + program.ahead_bytes + SLACK_BYTES, LARGEST_BUFFER_BYTES)


def _listen(address: str, size: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    # Before the handshake, which settles the window's scale; accepted sockets inherit them.
    _size_buffers(listener, size)
    listener.bind((address, 0))
    listener.listen(1)
    return listener


def _join(listener: socket.socket, size: int) -> tuple[socket.socket, socket.socket]:
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    _size_buffers(client, size)
    client.connect(listener.getsockname())
    server, _ = listener.accept()
    for sock in (client, server):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, server


def _size_buffers(sock: socket.socket, size: int) -> None:
    for option in (SO_SNDBUFFORCE, SO_RCVBUFFORCE):
        sock.setsockopt(socket.SOL_SOCKET, option, size)


def _check_memory(program: Program) -> None:
    """Beyond its memory for TCP a kernel drops what it receives, which would look like a bad network."""
    limit = Path("/proc/sys/net/ipv4/tcp_mem")  # In pages, and of the first namespace only.
    if not limit.is_file():
        return
    allowed = int(limit.read_text().split()[1]) * resource.getpagesize()
    # Once where it is sent and once where it is received, in buffers of up to twice the bytes; in both directions.
    need = 8 * program.ahead_bytes * len(program.connections)
    if need > allowed:
        raise WorkloadError(
            f"{program.ahead_bytes} bytes on each of {len(program.connections)} connections need {need >> 20} MiB of "
            f"TCP memory, and this kernel has {allowed >> 20} MiB; write a smaller payload, or raise net.ipv4.tcp_mem"
        )


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise WorkloadError(f"this workload needs {count} open files, and {hard} are allowed; raise ulimit -n")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
