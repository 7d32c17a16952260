"""The user-space path's delivery: whatever a wire loses, doubles or swaps, the bytes come once and in order."""

from collections import deque
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from emulator.workload.userspace import ACKNOWLEDGEMENT, DATA, LAST, MISSING, Delivery

WINDOW, SIZE = 16, 8


class Wire:
    """Two ends, and frames on their way between them, mistreated at random."""

    def __init__(self, seed: int, loss: float, double: float, swap: float) -> None:
        self.random, self.loss, self.double, self.swap = Random(seed), loss, double, swap
        self.frames: tuple[deque[tuple[int, int, int, int, bytes]], ...] = (deque(), deque())
        self.ends = tuple(
            Delivery(WINDOW, SIZE, lambda *frame, me=me: self.carry(me, *frame), pinned=False) for me in (0, 1)
        )

    def carry(self, sender: int, kind: int, number: int, payload: memoryview) -> None:
        end = self.ends[sender]
        frame = (kind, number, end.expected, end.told, bytes(payload))
        queue = self.frames[1 - sender]
        for _ in range(1 + (self.random.random() < self.double)):
            if self.random.random() >= self.loss:
                queue.append(frame)
                if len(queue) > 1 and self.random.random() < self.swap:
                    queue[-1], queue[-2] = queue[-2], queue[-1]

    def deliver(self) -> bool:
        """All frames that are under way; returns whether there were some."""
        found = False
        for receiver in (0, 1):
            while self.frames[receiver]:
                found = True
                self.ends[receiver].hear(*self.frames[receiver].popleft())
        return found


@given(
    data=st.binary(max_size=3000),
    seed=st.integers(0, 2**32),
    loss=st.floats(0, 0.5),
    double=st.floats(0, 0.5),
    swap=st.floats(0, 0.5),
    read=st.integers(1, 200),
)
def test_all_bytes_come_once_and_in_order(
    data: bytes, seed: int, loss: float, double: float, swap: float, read: int
) -> None:
    wire = Wire(seed, loss, double, swap)
    sender, receiver = wire.ends
    pieces = deque(memoryview(data)[start : start + SIZE] for start in range(0, len(data), SIZE))
    got, view = b"", memoryview(bytearray(read))
    for _ in range(10_000):
        while pieces and not sender.blocked:
            sender.send(pieces.popleft(), last=not pieces)
        if not wire.deliver():
            if sender.acknowledged == sender.next and not pieces and not receiver.ready:
                break
            sender.silence()
        assert len(receiver.ready) + len(receiver.early) <= 2 * WINDOW
        got += bytes(view[: receiver.take(view)])
    assert got == data


def test_a_sender_waits_for_credit_and_goes_on_with_it() -> None:
    wire = Wire(0, 0, 0, 0)
    sender, receiver = wire.ends
    count = 0
    while not sender.blocked:
        sender.send(memoryview(bytes(SIZE)), last=True)
        wire.deliver()
        count += 1
    assert count == WINDOW
    assert receiver.take(memoryview(bytearray(WINDOW * SIZE))) == WINDOW * SIZE
    wire.deliver()
    assert not sender.blocked


def test_only_what_is_missing_is_sent_again() -> None:
    sent: list[tuple[int, int]] = []
    end = Delivery(WINDOW, SIZE, lambda kind, number, _: sent.append((kind, number)), pinned=False)
    for number in range(4):
        end.send(memoryview(bytes([number] * SIZE)), last=number == 3)
    assert sent == [(DATA, 0), (DATA, 1), (DATA, 2), (DATA | LAST, 3)]
    end.hear(MISSING, 0, 1, WINDOW, b"")
    assert sent[4:] == [(DATA, 1)]
    end.hear(ACKNOWLEDGEMENT, 0, 4, WINDOW, b"")
    assert (end.acknowledged, end.sent_again) == (4, 1)
