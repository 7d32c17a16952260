"""Patterns over real TCP connections of this host: who sends what to whom, and that a wrong byte is noticed."""

import socket
import threading
from array import array
from contextlib import suppress
from itertools import pairwise
from time import monotonic_ns

import msgspec
import pytest

from emulator.errors import WorkloadError
from emulator.workload.connection import Connection, Direction
from emulator.workload.node import Node
from emulator.workload.patterns import Team, load_pattern, names
from emulator.workload.payload import PIECE_BYTES
from emulator.workload.program import Program
from emulator.workload.recording import NodeRecord

WAY = Direction(delay_ns=1000, rates_bps=(80_000_000_000,), cost_ns=0, mtu=9000)
GROUPS: dict[str, tuple[int, ...]] = {"left": (0, 1, 2), "right": (3, 4, 5)}
PLANES: dict[str, tuple[int, ...]] = {"a": (0, 1, 2, 3, 4, 5), "b": (0, 1, 3, 4)}


def make_program(
    pattern: str,
    nodes: int,
    payload: int,
    tokens: int = 3,
    compute_ns: int = 0,
    warmup: int = 1,
    parameters: dict[str, int | str] | None = None,
    groups: dict[str, tuple[int, ...]] | None = None,
    planes: dict[str, tuple[int, ...]] | None = None,
) -> Program:
    found = load_pattern(pattern, parameters or {})
    members = Team(
        nodes=tuple(f"n{index}" for index in range(nodes)),
        groups=groups or {},
        planes=planes or {"a": tuple(range(nodes))},
        payload_bytes=payload,
    )
    return Program(
        workload="test",
        description="",
        pattern=pattern,
        parameters=msgspec.structs.asdict(found),
        team=members,
        tokens=tokens,
        warmup_tokens=warmup,
        compute_ns=(compute_ns,) * nodes,
        ahead_bytes=found.ahead_bytes(members),
        connections=tuple(
            Connection(a=a, b=b, plane=plane, address="127.0.0.1", a_to_b=WAY, b_to_a=WAY)
            for a, b, plane in sorted(found.connections(members))
        ),
    )


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]


def flipping_pair(place: int) -> tuple[socket.socket, socket.socket]:
    """Two ends with a relay between them that changes one bit of the byte at `place` of what the first end sends."""
    near, relay_near = tcp_pair()
    relay_far, far = tcp_pair()

    def forward(source: socket.socket, target: socket.socket, flip: int) -> None:
        seen = 0
        with source, suppress(OSError):
            while data := bytearray(source.recv(65536)):
                if seen <= flip < seen + len(data):
                    data[flip - seen] ^= 1
                seen += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    for arguments in ((relay_near, relay_far, place), (relay_far, relay_near, -1)):
        threading.Thread(target=forward, args=arguments, daemon=True).start()
    return near, far


def play(program: Program, pairs: dict[int, tuple[socket.socket, socket.socket]] | None = None) -> list[NodeRecord]:
    """Every node's record. Raises the first error of a node; connections in `pairs` are those, others new ones."""
    count = len(program.team.nodes)
    sockets: list[dict[int, socket.socket]] = [{} for _ in range(count)]
    for number, connection in enumerate(program.connections):
        ends = (pairs or {}).get(number) or tcp_pair()
        sockets[connection.a][number], sockets[connection.b][number] = ends
    signs = memoryview(array("Q", [0] * 2 * count)).cast("B").cast("Q")
    records: dict[int, NodeRecord] = {}
    errors: list[Exception] = []

    def live(index: int) -> None:
        try:
            node = Node(program, index, sockets[index], signs)
            node.warm_up()
            node.run(monotonic_ns())
            records[index] = node.record()
        except Exception as error:
            errors.append(error)
            # The others need not wait for what will not come.
            for own in sockets:
                for sock in own.values():
                    with suppress(OSError):
                        sock.shutdown(socket.SHUT_RDWR)

    threads = [threading.Thread(target=live, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), list(signs)
    for own in sockets:
        for sock in own.values():
            sock.close()
    if errors:
        raise errors[0]
    return [records[index] for index in range(count)]


def stamps(data: bytes) -> list[int]:
    return list(array("q", data))


def messages(records: list[NodeRecord]) -> int:
    sent = sum(len(stamps(link.sent_ns)) for record in records for link in record.links)
    assert sent == sum(len(stamps(link.received_ns)) for record in records for link in record.links)
    return sent


def test_every_pattern_file_is_a_pattern() -> None:
    assert names() == [
        "aggregate",
        "all-reduce-mesh",
        "all-reduce-ring",
        "bulk",
        "chain",
        "distributed-llama",
        "expert-parallel",
        "hierarchical",
        "pipeline",
        "pipeline-gather",
        "prefill-decode",
        "sequence-parallel",
        "star",
        "tensor-parallel",
        "training-step",
    ]
    for name in names():
        assert load_pattern(name, {}).compute_on_path_ns(make_team(), (0, 0)) == 0


def make_team() -> Team:
    return Team(nodes=("n0", "n1"), groups={}, planes={}, payload_bytes=64)


@pytest.mark.parametrize("size", [1, 7, 8, 64, 14336, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES + 100])
@pytest.mark.parametrize("pattern", ["chain", "pipeline", "bulk"])
def test_messages_of_any_size_arrive(pattern: str, size: int) -> None:
    records = play(make_program(pattern, 3, size, tokens=3))
    assert messages(records) == 3 * {"chain": 3, "pipeline": 3, "bulk": 1}[pattern]


@pytest.mark.parametrize("nodes", [2, 3, 5])
@pytest.mark.parametrize("exchanges", [1, 3, 7])
def test_chain_goes_on_where_it_ended(nodes: int, exchanges: int) -> None:
    records = play(make_program("chain", nodes, 64, tokens=4, parameters={"exchanges": exchanges}))
    assert messages(records) == 4 * exchanges
    ends = [stamps(record.ends_ns) for record in records]
    for token in range(4):
        ended_on = [node for node in range(nodes) if ends[node][token]]
        assert ended_on == [(token + 1) * exchanges % nodes]
    in_order = [max(ends[node][token] for node in range(nodes)) for token in range(4)]
    assert in_order == sorted(in_order)


def test_pipeline_ends_on_the_first_stage() -> None:
    records = play(make_program("pipeline", 4, 64, tokens=2))
    assert messages(records) == 2 * 4
    assert all(stamps(records[0].ends_ns))
    assert not any(stamp for record in records[1:] for stamp in stamps(record.ends_ns))


def test_bulk_uses_two_nodes_and_turns_round() -> None:
    records = play(make_program("bulk", 3, 100_000, tokens=3))
    assert [bool(stamp) for stamp in stamps(records[1].ends_ns)] == [True, False, True]
    assert [bool(stamp) for stamp in stamps(records[0].ends_ns)] == [False, True, False]
    assert records[2].links == ()


@pytest.mark.parametrize("size", [10, 64, 14336, 200_000])
@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_all_reduce_mesh(nodes: int, size: int) -> None:
    records = play(make_program("all-reduce-mesh", nodes, size, tokens=11, parameters={"times": 2}))
    assert messages(records) == 11 * 2 * nodes * (nodes - 1)
    assert all(all(stamps(record.ends_ns)) for record in records)


@pytest.mark.parametrize("size", [10, 64, 14336, 200_000])
@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_all_reduce_ring(nodes: int, size: int) -> None:
    records = play(make_program("all-reduce-ring", nodes, size, tokens=11, parameters={"times": 2}))
    assert messages(records) == 11 * 2 * nodes * 2 * (nodes - 1)
    sizes = [size for record in records for link in record.links for size in stamps(link.sizes)]
    assert sum(sizes) == 11 * 2 * 2 * (nodes - 1) * size
    assert all(all(stamps(record.ends_ns)) for record in records)


@pytest.mark.parametrize("size", [4, 14336, 200_002])
def test_aggregate(size: int) -> None:
    program = make_program("aggregate", 6, size, tokens=10, groups=GROUPS, planes=PLANES)
    records = play(program)
    # In each group 6 messages; between the two pairs of aggregators 2 each; from each of 4 aggregators to 2 nodes.
    assert messages(records) == 10 * (2 * 6 + 2 * 2 + 4 * 2)
    across = {number for number, connection in enumerate(program.connections) if connection.plane == "b"}
    assert {(program.connections[n].a, program.connections[n].b) for n in across} == {(0, 3), (1, 4)}
    assert all(all(stamps(record.ends_ns)) for record in records)


@pytest.mark.parametrize("place", [0, 63, 64 * 2 + 30])
def test_a_changed_bit_of_a_message_ends_the_run(place: int) -> None:
    program = make_program("chain", 2, 64, tokens=5)
    with pytest.raises(WorkloadError, match=r"message \d+ from n0 came with a content that n0 did not send"):
        play(program, {0: flipping_pair(place)})


@pytest.mark.parametrize("place", [5, PIECE_BYTES + 5, 2 * PIECE_BYTES + 5])
def test_a_changed_bit_in_any_piece_ends_the_run(place: int) -> None:
    program = make_program("bulk", 2, 2 * PIECE_BYTES + 100, tokens=1, warmup=0)
    with pytest.raises(WorkloadError, match="message 0 from n0"):
        play(program, {0: flipping_pair(place)})


@pytest.mark.parametrize("pattern", ["all-reduce-mesh", "all-reduce-ring"])
def test_a_changed_bit_of_a_vector_ends_the_run(pattern: str) -> None:
    program = make_program(pattern, 3, 600, tokens=5)
    with pytest.raises(WorkloadError, match=r"token \d+: all-reduce number \d+ came to a wrong sum"):
        play(program, {0: flipping_pair(700)})


def test_a_closed_connection_is_named() -> None:
    near, far = tcp_pair()
    near.shutdown(socket.SHUT_WR)
    signs = memoryview(array("Q", [0] * 4)).cast("B").cast("Q")
    node = Node(make_program("bulk", 2, 64), 1, {0: far}, signs)
    with near, far, pytest.raises(WorkloadError, match="the connection to n0 ended"):
        node.receive(node.link(0))
    assert list(signs) == [0, 0, 0, 1], "it says whom it waits for"


def test_messages_are_stamped_in_the_order_in_which_they_become_whole() -> None:
    program = make_program("all-reduce-mesh", 3, 600)
    ours, peers = {}, {}
    for number, connection in enumerate(program.connections):
        if connection.a == 0:
            ours[number], peers[connection.b] = tcp_pair()
    node = Node(program, 0, ours, memoryview(array("Q", [0] * 6)).cast("B").cast("Q"))
    half = threading.Timer(0.3, lambda: peers[1].sendall(b"1" * 300))
    peers[1].sendall(b"1" * 300)  # Half of a message has come first, and does not count.
    whole = threading.Timer(0.1, lambda: peers[2].sendall(b"2" * 600))
    half.start()
    whole.start()
    received = [bytes(view[:1]) for view in node.receive_data([node.link(1), node.link(2)], 600)]
    assert received == [b"2", b"1"]
    first, second = (
        stamps(link.received_ns)[0] for link in sorted(node.record().links, key=lambda link: -link.connection)
    )
    assert second - first > 100_000_000
    for sock in (*ours.values(), *peers.values()):
        sock.close()


def test_compute_is_slept_and_host_cost_is_paid_before_the_wire() -> None:
    costly = msgspec.structs.replace(WAY, cost_ns=2_000_000)
    program = make_program("chain", 2, 64, tokens=3, compute_ns=1_000_000, parameters={"exchanges": 1})
    (connection,) = program.connections
    program = msgspec.structs.replace(
        program, connections=(msgspec.structs.replace(connection, a_to_b=costly, b_to_a=costly),)
    )
    records = play(program)
    sent = sorted(stamp for record in records for link in record.links for stamp in stamps(link.sent_ns))
    received = sorted(stamp for record in records for link in record.links for stamp in stamps(link.received_ns))
    assert all(there - here >= 2_000_000 for here, there in zip(sent, received, strict=True))
    ends = sorted(stamp for record in records for stamp in stamps(record.ends_ns) if stamp)
    # Two nodes compute for each token, and a message is paid for: 4 ms at the least.
    assert all(later - earlier >= 4_000_000 for earlier, later in pairwise(ends))


@pytest.mark.parametrize(
    ("pattern", "parameters", "message"),
    [
        ("chains", {}, "unknown pattern `chains`; did you mean `chain`?"),
        ("x", {}, "unknown pattern `x`; known: aggregate"),
        ("base", {}, "unknown pattern `base`"),
        ("os.path", {}, "unknown pattern"),
        ("chain", {"exchange": 3}, "unknown parameter `exchange`; known: exchanges"),
        ("bulk", {"exchanges": 3}, "unknown parameter `exchanges`; known: none"),
        ("chain", {"exchanges": 0}, "parameter `exchanges`: expected `int` >= 1; write that"),
        ("chain", {"exchanges": "three"}, "parameter `exchanges`: expected `int`, got `str`; write that"),
    ],
)
def test_bad_parameters_say_what_to_write(pattern: str, parameters: dict[str, int | str], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        load_pattern(pattern, parameters)


@pytest.mark.parametrize(
    ("pattern", "size", "message"),
    [
        ("all-reduce-mesh", 7, "a vector of 7 bytes cannot be reduced"),
        ("all-reduce-mesh", 1 << 30, "cannot be reduced"),
        ("all-reduce-ring", 4, "write an even payload of 6B to 16MiB"),
        ("aggregate", 64, "aggregate needs two planes and two groups, and there are 1 and 0"),
    ],
)
def test_what_a_pattern_cannot_do_is_said(pattern: str, size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_program(pattern, 3, size)


def test_aggregate_says_which_group_lacks_aggregators() -> None:
    with pytest.raises(ValueError, match="same number of nodes on plane `b`, and they have: left 2, right 1"):
        make_program("aggregate", 6, 64, groups=GROUPS, planes=PLANES | {"b": (0, 1, 3)})
