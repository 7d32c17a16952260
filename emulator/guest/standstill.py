"""Virtual time that stands still: when to look at the guest's clock, and what was seen.

Looking wakes the agent inside, so it is done seldom: a request that lasts less than half its limit is not looked at.
"""

from typing import Literal

from emulator.guest.protocol import Sight

ADVANCE = 5e-6
"""Seconds of virtual time for each second of wall time, below which it stands still."""
NUDGE = 1.0
"""Seconds between a look that is not answered and a nudge, and between nudges."""
PATIENCE = 30.0
"""Seconds of nudging after which an agent that does not answer is given up."""


class Standstill:
    """What is known of virtual time since the guest was resumed, at wall time `now` (seconds, as all times here)."""

    def __init__(self, now: float) -> None:
        self.moved = now
        """When virtual time was last found to have moved."""
        self.passed = 0
        """Nanoseconds of virtual time since then, without what looking takes."""
        self.looked: int | None = None
        """Virtual time at the end of the last look, ns."""
        self.look_at: float | None = None
        self.asked: float | None = None
        """When the look was begun that has not been answered."""
        self.nudge_at = 0.0

    def next(self, now: float, limit: float) -> float:
        """When `due` will have something to say, if no request may stand still for longer than `limit`."""
        if self.asked is not None:
            return self.nudge_at
        if self.look_at is None:
            self.look_at = now + limit / 2
        return self.look_at

    def rest(self) -> None:
        """Nobody asks any more."""
        self.look_at = self.asked = None

    def due(self, now: float) -> Literal["look", "nudge", "give up"] | None:
        """What is to be done now."""
        if self.asked is not None:
            if now < self.nudge_at:
                return None
            self.nudge_at = now + NUDGE
            return "nudge" if now - self.asked < PATIENCE else "give up"
        if self.look_at is None or now < self.look_at:
            return None
        self.look_at = None
        self.asked = now
        self.nudge_at = now + NUDGE
        return "look"

    def saw(self, now: float, sight: Sight) -> None:
        """The answer to a look."""
        self.asked = None
        if self.looked is not None:
            self.passed += sight.now_ns - self.looked
        self.looked = sight.looked_ns
        if self.passed > ADVANCE * 1e9 * (now - self.moved):
            self.moved = now
            self.passed = 0
