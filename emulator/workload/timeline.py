"""What each node did when, and the critical path of each token: the stamps of a run as intervals. On the host."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Literal, NamedTuple

from emulator.errors import UsageError
from emulator.workload.program import Program
from emulator.workload.recording import Recording
from emulator.workload.summarise import stamps, token_times

Activity = Literal["compute", "send", "wait", "wire", "other"]
"""compute: slept by the model. send: what a message costs its sender's host. wait: for a message. wire: a message on
its way. other: what no stamp accounts for, the process's own work on the real clock."""


class Interval(NamedTuple):
    """Nodes are indices into the team. All times are CLOCK_MONOTONIC of the run, in nanoseconds."""

    node: int
    """Who does it; of `wire`, the sender."""
    what: Activity
    start_ns: int
    end_ns: int
    peer: int = -1
    """Whom it sends to or waits for; -1: nobody."""


class Message(NamedTuple):
    sender: int
    receiver: int
    sent_ns: int
    """When the send call began."""
    wire_ns: int
    """When the host had spent on it what the profile says."""
    received_ns: int
    """When it was whole."""
    size: int
    """Bytes, headers not counted."""
    plane: str


class Token(NamedTuple):
    number: int
    start_ns: int
    end_ns: int
    path: tuple[Interval, ...]
    """The critical path, from start to end without a gap: what the token's end waited for, and what that waited for."""


class Timeline(NamedTuple):
    """One token of a run, or all of them."""

    nodes: tuple[str, ...]
    tokens: tuple[Token, ...]
    intervals: tuple[Interval, ...]
    """Of each node, in order and without overlap, none of them `wire`."""
    messages: tuple[Message, ...]


def typical_token(program: Program, recording: Recording) -> int:
    """The number of the token whose time is the median."""
    import numpy as np

    starts, ends = token_times(recording, program)
    return int(np.argsort(ends - starts, kind="stable")[(program.tokens - 1) // 2])


def timeline(program: Program, recording: Recording, token: int | None = None) -> Timeline:
    """The timeline of token number `token` (the first is 0), or of all. Raises UsageError where there is none such."""
    starts, ends = (times.tolist() for times in token_times(recording, program))
    if token is not None and not 0 <= token < program.tokens:
        raise UsageError(f"there is no token {token}; the run has 0 to {program.tokens - 1}")
    messages = list(_messages(program, recording))
    busy = _busy(recording, messages)
    chosen = range(program.tokens) if token is None else [token]
    past = [_Past(node, busy, messages) for node in range(len(program.team.nodes))]
    tokens = []
    for number in chosen:
        last = max(range(len(past)), key=lambda node: int(stamps(recording.nodes[node].ends_ns)[number]))
        path = tuple(reversed(list(_walk_back(past, last, ends[number], starts[number]))))
        tokens.append(Token(number, starts[number], ends[number], path))
    first, end = tokens[0].start_ns, max(one.end_ns for one in tokens)
    inside = [message for message in messages if first <= message.sent_ns and message.received_ns <= end]
    intervals = [
        one._replace(start_ns=max(one.start_ns, first), end_ns=min(one.end_ns, end))
        for node in range(len(past))
        for one in _filled(node, busy[node], messages, recording.start_ns)
        if one.start_ns < end and one.end_ns > first
    ]
    return Timeline(program.team.nodes, tuple(tokens), tuple(intervals), tuple(inside))


def _messages(program: Program, recording: Recording) -> Iterator[Message]:
    links = {(node, link.connection): link for node, record in enumerate(recording.nodes) for link in record.links}
    for number, connection in enumerate(program.connections):
        for sender, receiver in ((connection.a, connection.b), (connection.b, connection.a)):
            ours, theirs = links[sender, number], links[receiver, number]
            cost = connection.sent_by(sender).cost_ns
            sent, received = stamps(ours.sent_ns).tolist(), stamps(theirs.received_ns).tolist()
            sizes = stamps(ours.sizes).tolist() or [program.team.payload_bytes] * len(sent)
            for begun, whole, size in zip(sent, received, sizes, strict=True):
                yield Message(sender, receiver, begun, min(begun + cost, whole), whole, size, connection.plane)


def _busy(recording: Recording, messages: list[Message]) -> list[list[Interval]]:
    """Of each node: when it computed and when its host spent time on a message, in order."""
    busy: list[list[Interval]] = []
    for node, record in enumerate(recording.nodes):
        computed = stamps(record.computed_ns).tolist()
        busy.append(
            [Interval(node, "compute", *pair) for pair in zip(computed[::2], computed[1::2], strict=True)]
            + [
                Interval(node, "send", one.sent_ns, one.wire_ns, one.receiver)
                for one in messages
                if one.sender == node and one.wire_ns > one.sent_ns
            ]
        )
        busy[-1].sort(key=lambda one: one.start_ns)
    return busy


def _filled(node: int, busy: list[Interval], messages: list[Message], start_ns: int) -> Iterator[Interval]:
    """`busy`, and between two of its intervals what the node waited for."""
    received = sorted((one.received_ns, one.sender) for one in messages if one.receiver == node)
    now, place = start_ns, 0
    for one in [*busy, None]:
        while place < len(received) and (one is None or received[place][0] <= one.start_ns):
            whole, sender = received[place]
            if whole > now:
                yield Interval(node, "wait", now, whole, sender)
                now = whole
            place += 1
        if one:
            if one.start_ns > now:
                yield Interval(node, "other", now, one.start_ns)
            yield one._replace(start_ns=max(one.start_ns, now))
            now = max(now, one.end_ns)


class _Past:
    """What ended on a node, in order of the ends."""

    def __init__(self, node: int, busy: list[list[Interval]], messages: list[Message]) -> None:
        ended: list[tuple[int, int, Interval | Message]] = [(one.end_ns, 1, one) for one in busy[node]]
        # What takes no time leads nowhere back.
        ended += [
            (one.received_ns, 0, one) for one in messages if one.receiver == node and one.received_ns > one.sent_ns
        ]
        # At one instant: a message that came while the node was busy was read when it had done, and waited for that.
        ended.sort(key=lambda entry: entry[:2])
        self._ends = [entry[0] for entry in ended]
        self._what = [entry[2] for entry in ended]

    def before(self, time_ns: int) -> Interval | Message | None:
        """The last that had ended by then."""
        place = bisect_right(self._ends, time_ns)
        return self._what[place - 1] if place else None


def _walk_back(past: list[_Past], node: int, end_ns: int, start_ns: int) -> Iterator[Interval]:
    """The critical path from the end of a token to its start, last interval first."""
    now = end_ns
    while now > start_ns:
        last = past[node].before(now)
        ended = start_ns if last is None else last.received_ns if isinstance(last, Message) else last.end_ns
        if last is None or ended <= start_ns:
            yield Interval(node, "other", start_ns, now)
            return
        if ended < now:
            yield Interval(node, "other", ended, now)
        if isinstance(last, Message):
            if last.received_ns > (began := max(last.wire_ns, start_ns)):
                yield Interval(last.sender, "wire", began, last.received_ns, last.receiver)
            node, now = last.sender, last.wire_ns
            if last.wire_ns > last.sent_ns:
                if now > start_ns:
                    yield Interval(node, "send", max(last.sent_ns, start_ns), now, last.receiver)
                now = last.sent_ns
        else:
            yield last._replace(start_ns=max(last.start_ns, start_ns))
            now = last.start_ns
