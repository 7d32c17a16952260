"""How a server puts requests together: continuous and static batching, played on given step times. Pure.

A step takes the next token of every sequence in the batch through the model, or a piece of one prompt. Prompts go
first, one after the other, and yield their first token.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal, NamedTuple

from emulator.study.requests import Request

Batching = Literal["continuous", "static"]
BATCHINGS: tuple[Batching, ...] = ("continuous", "static")

PROMPT_PAD = 16
"""The last piece of a prompt is filled up to a multiple of this many tokens, as kernels with fixed shapes need it; it
also bounds how many sizes of step there are."""

StepTime = Callable[[int, int], int]
"""Nanoseconds of a step of so many tokens, which belong to so many sequences."""


class Speculation(NamedTuple):
    """A draft model guesses tokens, and one step of the model checks them all."""

    draft_tokens: int = 0
    """Guessed for each sequence before each step; 0: none."""
    acceptance: float = 0.0
    """Probability that a guess is right, given that those before it were. After the last right one, the step itself
    yields one more token."""
    draft_ns: int = 0
    """To guess one token for all sequences of the batch."""


class Server(NamedTuple):
    max_batch: int
    """Sequences at once."""
    prompt_piece: int
    """Most tokens of a prompt in one step."""
    speculation: Speculation = Speculation()
    seed: int = 1
    """Of which guesses are right."""


class Served(NamedTuple):
    """What became of a request."""

    request: Request
    first_ns: int
    """When its first token was there."""
    end_ns: int
    """When its last was."""


class Played(NamedTuple):
    served: tuple[Served, ...]
    steps: int
    """That generated; those of prompts not counted."""
    filled: float
    """Mean number of sequences in those steps that still needed a token."""


class _Sequence:
    def __init__(self, request: Request, first_ns: int) -> None:
        self.request, self.first_ns, self.end_ns = request, first_ns, first_ns
        self.left = request.output_tokens - 1

    def served(self) -> Served:
        return Served(self.request, self.first_ns, self.end_ns)


def play(batching: Batching, requests: Sequence[Request], server: Server, step_ns: StepTime) -> Played:
    """Serves all requests. Static: a batch is made of what waits, up to `max_batch`; nobody joins it, and sequences
    that have ended keep their places, until all of it have. Continuous: a place is given away as soon as it is free."""
    arriving = deque(sorted(requests))
    random = Random(server.seed)
    running: list[_Sequence] = []
    served: list[Served] = []
    now = steps = filled = 0
    while arriving or running:
        if not running:
            now = max(now, arriving[0].arrival_ns)
        if batching == "continuous" or not running:
            # Who waits when a static batch begins is in it; who comes while it reads prompts is not.
            joining = bisect_right(arriving, now, key=lambda request: request.arrival_ns)
            while arriving and len(running) < server.max_batch and (batching == "continuous" or joining > 0):
                if arriving[0].arrival_ns > now:
                    break
                joining -= 1
                request = arriving.popleft()
                now += sum(step_ns(piece, 1) for piece in _pieces(request.prompt_tokens, server.prompt_piece))
                running.append(_Sequence(request, now))
        open_ = [sequence for sequence in running if sequence.left]
        if open_:
            spoken = server.speculation
            now += spoken.draft_tokens * spoken.draft_ns
            # In a static batch, sequences that have ended are computed all the same: padding.
            computed = len(running if batching == "static" else open_)
            now += step_ns(computed * (1 + spoken.draft_tokens), computed)
            steps, filled = steps + 1, filled + len(open_)
            for sequence in open_:
                sequence.left = max(0, sequence.left - 1 - _right(random, spoken))
                sequence.end_ns = now
        if batching == "continuous":
            served += [sequence.served() for sequence in running if not sequence.left]
            running = [sequence for sequence in running if sequence.left]
        elif not any(sequence.left for sequence in running):
            served += [sequence.served() for sequence in running]
            running = []
    return Played(tuple(sorted(served)), steps, filled / steps if steps else 0.0)


def _pieces(tokens: int, largest: int) -> list[int]:
    whole, rest = divmod(tokens, largest)
    return [largest] * whole + ([min(largest, -(-rest // PROMPT_PAD) * PROMPT_PAD)] if rest else [])


def _right(random: Random, speculation: Speculation) -> int:
    """How many of a sequence's guesses are right."""
    for count in range(speculation.draft_tokens):
        if random.random() >= speculation.acceptance:
            return count
    return speculation.draft_tokens
