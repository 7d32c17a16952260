"""When the supervisor looks at the guest's clock, and what it makes of it."""

from emulator.guest.protocol import Sight
from emulator.guest.standstill import NUDGE, PATIENCE, Standstill

SECOND = 1_000_000_000


def look(still: Standstill, now: float, virtual: int, cost: int = 0) -> None:
    assert still.due(now) == "look"
    still.saw(now, Sight(virtual, virtual + cost, []))


def test_time_that_moves() -> None:
    still = Standstill(0.0)
    for turn in range(1, 10):
        now = still.next(30.0 * (turn - 1), 60.0)
        assert now == 30.0 * turn
        assert still.due(now - 1) is None
        look(still, now, turn * SECOND)
        assert now - still.moved <= 30.0


def test_time_that_stands_still() -> None:
    still = Standstill(0.0)
    for turn in range(1, 3):
        look(still, still.next(30.0 * (turn - 1), 60.0), 77 * SECOND)
    assert still.moved == 0.0


def test_looking_itself_is_no_movement() -> None:
    still = Standstill(0.0)
    virtual = SECOND
    for turn in range(1, 20):
        look(still, still.next(30.0 * (turn - 1), 60.0), virtual, cost=SECOND)
        virtual += SECOND
    assert still.moved == 0.0


def test_slow_movement_counts_from_5_us_a_second() -> None:
    for step, moves in ((140_000, False), (160_000, True)):
        still = Standstill(0.0)
        for turn in range(1, 20):
            look(still, still.next(30.0 * (turn - 1), 60.0), SECOND + turn * step)
        assert (still.moved > 0.0) is moves


def test_agent_that_does_not_answer_is_nudged_then_given_up() -> None:
    still = Standstill(0.0)
    now = still.next(0.0, 60.0)
    assert still.due(now) == "look"
    begin = now
    said: list[str | None] = []
    while "give up" not in said:
        now = still.next(now, 60.0)
        said.append(still.due(now))
    assert set(said) == {"nudge", "give up"}
    assert PATIENCE <= now - begin <= PATIENCE + NUDGE


def test_nothing_is_due_once_nobody_asks() -> None:
    still = Standstill(0.0)
    still.next(0.0, 60.0)
    still.rest()
    assert still.due(1000.0) is None
