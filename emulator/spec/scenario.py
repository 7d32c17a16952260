"""A scenario as a person writes it: what happens to the cables at which time of a run."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from emulator.spec.load import Document, Mistakes, Part
from emulator.spec.profile import Text
from emulator.spec.units import Duration, Fraction, Rate

MAX_EVENTS = 200


class Event(Part):
    """One thing that happens to the cables between two nodes."""

    at: Duration
    """After the common start of the run, on the clock of the run."""
    action: Literal["down", "up", "set", "reset"]
    """`down`: the cable is pulled. `up`: it is back. `set`: other values. `reset`: the values of before the run."""
    a: Text
    b: Text
    plane: Text | None = None
    """All cables between the two, where it is left out."""
    one_way: bool = False
    """`set` and `reset`: only what `a` sends to `b`."""
    delay: Duration | None = None
    jitter: Duration | None = None
    rate: Rate | None = None
    loss: Fraction | None = None
    loss_correlation: Fraction | None = None

    @property
    def values(self) -> dict[str, int | float]:
        """What `set` changes, by the fields of plan.model.Shaping."""
        found = {
            "delay_ns": self.delay,
            "jitter_ns": self.jitter,
            "rate_bps": self.rate,
            "loss": self.loss,
            "loss_correlation": self.loss_correlation,
        }
        return {key: value for key, value in found.items() if value is not None}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.action == "set" and not self.values:
            raise Mistakes((("action",), "`set` changes nothing here; write delay, jitter, rate or loss"))
        if self.action != "set" and self.values:
            raise Mistakes((("action",), f"`{self.action}` takes no values; write `set`, or leave them out"))
        if self.one_way and self.action in ("down", "up"):
            raise Mistakes((("one_way",), "a cable is pulled for both directions; leave it out"))
        return self


class Scenario(Document):
    """Events beside a run. After it all is as it was before."""

    name: Text
    description: Text
    events: Annotated[list[Event], Field(min_length=1, max_length=MAX_EVENTS)]

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for index, (before, event) in enumerate(zip(self.events, self.events[1:], strict=False), 1):
            if event.at < before.at:
                raise Mistakes((("events", index, "at"), "is before the event above; write events in their order"))
        return self
