"""Protocols: what their files say becomes charges, and the transport does what it is told over real sockets."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic_ns
from typing import cast

import msgspec
import pytest

from emulator.errors import SpecError
from emulator.spec.load import load, parse
from emulator.spec.protocol import Protocol as Written
from emulator.spec.protocol import load_protocol
from emulator.spec.shipped import resolve, shipped
from emulator.study.ablate import STEPS
from emulator.study.prepare import read_plan, read_program
from emulator.workload.connection import Connection, Direction
from emulator.workload.program import decode, encode
from emulator.workload.protocol import Charge, Protocol, protocol
from emulator.workload.transport import Memory, Transport

SIZE = 14336
WAY = Direction(delay_ns=40_000, rates_bps=(80_000_000_000,), cost_ns=0, mtu=9000)


def with_steps(name: str, *steps: str) -> Protocol:
    return protocol(load(resolve("protocol", name), Written, steps))


@pytest.mark.parametrize("name", shipped("protocol"))
def test_shipped_protocols_load_under_their_name(name: str) -> None:
    assert load_protocol(name).name == name


def test_the_documents_tcp_takes_what_they_say() -> None:
    tcp = with_steps("tcp-documents")
    opening = 2 * (40_000 + round(74 * 8 / 80))
    assert tcp.expected_ns(SIZE, WAY, WAY) + 40_000 == 300_000 + opening - 80_000
    assert sum(tcp.parts(SIZE).values()) == 180_000


def test_all_steps_lead_to_rdma() -> None:
    last = with_steps("tcp-documents", *STEPS.values())
    assert msgspec.structs.replace(last, name="rdma") == with_steps("rdma")
    assert last.expected_ns(SIZE, WAY, WAY) == 0
    assert (last.region_bytes, last.region_ns) == (256_000_000, 605 + 62_500 * 722)


def test_memory_is_registered_only_on_the_user_space_path() -> None:
    assert with_steps("tcp-documents").pin == "never"
    assert with_steps("tcp-documents", "path=user-space").parts(SIZE)["registration"] == 605 + 4 * 722
    assert "registration" not in with_steps("tcp-documents", "path=user-space", "registration.when=once").parts(SIZE)


def test_who_polls_is_not_woken_up() -> None:
    waits, polls = with_steps("tcp-measured"), with_steps("tcp-measured", "polling=busy")
    assert waits.end_ns("receiver", SIZE) - polls.end_ns("receiver", SIZE) == 2300
    assert (waits.busy, polls.busy, polls.on("virtual").busy, polls.on("real").busy) == (False, True, False, True)
    assert polls.on("real").end_ns("receiver", SIZE) == 0


def test_a_charge_counts_messages_segments_pages_and_bytes() -> None:
    one = Charge(name="x", end="sender", message_ns=1, segment_ns=10, page_ns=100, bytes_per_s=10**9, times=2)
    assert one.ns(9000, 4000) == 1 + 3 * 10 + 3 * 100 + 2 * 9000


def test_header_bytes_beyond_those_of_tcp_take_time_on_the_cable() -> None:
    assert with_steps("rdma").header_ns(SIZE, WAY) == 0
    assert with_steps("rdma", "header=166B").header_ns(SIZE, WAY) == 2 * 100 * 8 // 80


def test_a_figure_without_a_source_is_refused() -> None:
    text = re.sub(r'(wake_up: \{time: 2300ns), source: "[^"]*"', r"\1", resolve("protocol", "tcp-measured").read_text())
    with pytest.raises(SpecError, match="`source` is missing"):
        parse(text, Path("p.yaml"), Written)


def test_a_workload_names_its_protocol() -> None:
    plan = read_plan("mesh4-tb5-rdma")
    program = read_program(plan, "token-exchange", settings=["protocol=tcp-measured"])
    assert program.protocol
    assert program.protocol.name == "tcp-measured"
    assert decode(encode(program)) == program
    with pytest.raises(SpecError, match="unknown protocol `tcp`; known: rdma, "):
        read_program(plan, "token-exchange", settings=["protocol=tcp"])


Ends = Callable[[Protocol], tuple[Transport, Transport]]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Both ends of a connection over loopback, under a protocol."""
    opened: list[socket.socket | Transport] = []

    def make(kind: Protocol) -> tuple[Transport, Transport]:
        listener = socket.create_server(("127.0.0.1", 0))
        a = socket.create_connection(listener.getsockname())
        b, _ = listener.accept()
        opened.extend((listener, a, b))
        pair = Connection(a=0, b=1, plane="", address="127.0.0.1", a_to_b=WAY, b_to_a=WAY)
        made = [
            Transport(kind, Memory(max(kind.region_bytes, 1)), sock, 3, pair, is_a)
            for sock, is_a in ((a, True), (b, False))
        ]
        opened.extend(made)
        return made[0], made[1]

    yield make
    for one in opened:
        one.close()


KINDS = [
    ("tcp-measured", ()),
    ("tcp-measured", ("connection.when=kept",)),
]


@pytest.mark.parametrize(("name", "steps"), KINDS)
def test_messages_come_whole_both_ways(ends: Ends, name: str, steps: tuple[str, ...]) -> None:
    a, b = ends(with_steps(name, *steps))
    for number, (sender, receiver) in enumerate([(a, b), (b, a), (a, b)]):
        data = bytes([number]) * SIZE
        thread = threading.Thread(target=sender.sendall, args=(data,))
        thread.start()
        view = memoryview(bytearray(SIZE))
        assert receiver.recv_into(view, 0, socket.MSG_WAITALL) == SIZE
        assert view == data
        thread.join()


def test_a_message_in_chunks_comes_whole_over_connections_of_their_own(ends: Ends) -> None:
    a, b = ends(with_steps("tcp-measured"))
    thread = threading.Thread(target=lambda: [a.sendmsg([b"ab", b"cd"]) for _ in range(3)])
    thread.start()
    view = memoryview(bytearray(12))
    assert b.recv_into(view, 0, socket.MSG_WAITALL) == 12
    assert bytes(view) == b"abcdabcdabcd"
    thread.join()


def test_both_ends_take_the_time_they_are_charged_for(ends: Ends) -> None:
    costs = (
        Charge(name="x", end="sender", message_ns=3_000_000),
        Charge(name="y", end="receiver", message_ns=5_000_000),
    )
    a, b = ends(msgspec.structs.replace(with_steps("rdma"), charges=costs, pin="never", region_bytes=0))
    start = monotonic_ns()
    a.sendall(b"1234")
    assert monotonic_ns() - start >= 3_000_000
    start = monotonic_ns()
    b.recv_into(memoryview(bytearray(4)))
    assert monotonic_ns() - start >= 5_000_000


def test_memory_is_pinned() -> None:
    memory = Memory(1 << 20)
    memory.hold(b"x" * (1 << 20))

    def locked() -> int:
        (found,) = re.findall(r"VmLck:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return int(cast(str, found))

    before = locked()
    memory.pin(1 << 20)
    assert locked() == before + 1024
    memory.unpin(1 << 20)
    assert locked() == before
