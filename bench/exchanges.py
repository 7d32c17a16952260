"""Exchanges per second of wall time in the guest, against the plainest Python doing the same over this host's loopback.

    python -m bench.exchanges

The reference has no cables, no delay and no namespaces: four processes that pass 14336 bytes on over TCP.
"""

import os
import socket
import statistics
import sys
import time

from emulator.place.choose import Choice
from emulator.place.life import temporary
from emulator.study.measure import measure
from emulator.study.prepare import read_plan, read_program

NODES = 4
MESSAGE = 14336
TOKENS = (1000, 6000)
"""The marginal rate between these two runs: starting processes does not count."""
ROUNDS = 3


def main() -> int:
    """Print both rates and their ratio."""
    guest, reference = [], []
    plan = read_plan("mesh4-tb5-rdma", cluster=f"bench-{os.getpid()}", ideal=True)
    choice = Choice("guest", "virtual", "benchmark")

    def silent(_what: str, _share: float) -> None:
        pass

    with temporary(plan, choice, file="mesh4-tb5-rdma", memory="1GiB", seed=1, ideal=True, progress=silent) as cluster:
        for _ in range(ROUNDS):
            few, many = (
                measure(cluster, read_program(plan, "token-exchange", tokens=tokens), limit_s=60, progress=silent)
                for tokens in TOKENS
            )
            guest.append((many.exchanges - few.exchanges) / (many.wall_seconds - few.wall_seconds))
            reference.append(loopback(TOKENS[1] * 3))
    ours, theirs = statistics.median(guest), statistics.median(reference)
    print(f"exchanges per second of wall time, chain on {NODES} nodes, {MESSAGE} B, medians of {ROUNDS}:")
    print(f"  in the guest, virtual clock  {ours:10,.0f}")
    print(f"  plain Python over loopback   {theirs:10,.0f}")
    print(f"  ratio                        {ours / theirs:10.2f}")
    return 0


def loopback(messages: int) -> float:
    """Messages per second around a ring of processes."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(NODES)]
    children = [_child(index, listeners, messages) for index in range(1, NODES)]
    try:
        after, before = _ring(0, listeners)
        data = bytearray(MESSAGE)
        start = time.perf_counter()
        for _ in range(messages // NODES):
            after.sendall(data)
            before.recv_into(data, MESSAGE, socket.MSG_WAITALL)
        return messages / (time.perf_counter() - start)
    finally:
        for child in children:
            os.waitpid(child, 0)
        for listener in listeners:
            listener.close()


def _ring(index: int, listeners: list[socket.socket]) -> tuple[socket.socket, socket.socket]:
    """Sockets to the next node and from the one before."""
    after = socket.create_connection(listeners[(index + 1) % NODES].getsockname())
    before, _ = listeners[index].accept()
    for sock in (after, before):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return after, before


def _child(index: int, listeners: list[socket.socket], messages: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    after, before = _ring(index, listeners)
    data = bytearray(MESSAGE)
    for _ in range(messages // NODES):
        before.recv_into(data, MESSAGE, socket.MSG_WAITALL)
        after.sendall(data)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
