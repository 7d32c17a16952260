"""A profile: an interconnect under a protocol, as one direction of one cable shows it to a program."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from emulator.spec.load import Document, Mistakes, load
from emulator.spec.shipped import resolve
from emulator.spec.units import DURATION, Duration, Fraction, Mtu, Rate, Span

Distribution = Literal["uniform", "normal", "pareto", "paretonormal"]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class Profile(Document):
    """What netem does to each direction of a cable, and what a message costs its sender."""

    name: Text
    """The file's name without `.yaml`."""
    description: Text
    interconnect: Text
    """The kind of port a cable occupies: nodes list their ports by it."""
    protocol: Text
    """What runs over it: tcp, rdma, offload, ..."""
    delay: Span
    """One way. A range, as `30us..50us`, is its middle as delay and its half-width as jitter."""
    jitter: Duration = 0
    distribution: Distribution = "uniform"
    """Uniform: within delay - jitter and delay + jitter. The others: jitter is the standard deviation."""
    correlation: Fraction = 0.0
    """Of each delay with the one before."""
    loss: Fraction = 0.0
    loss_correlation: Fraction = 0.0
    duplicate: Fraction = 0.0
    reorder: Fraction = 0.0
    """Share of packets sent at once, past those that wait."""
    rate: Rate
    """Bits per second on the wire, one direction."""
    mtu: Mtu = 9000
    host_cost_per_message: Duration = 0
    """What the sending node spends on each message before it is on the wire."""
    cost_factor: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)] | None = None
    """Price relative to another interconnect, where a source gives one."""
    maturity: Literal["production", "early", "experimental", "planned"] | None = None
    """How settled it is, where that is known."""
    source: Text
    """Where the figures come from, as a person can look it up."""

    @property
    def delay_ns(self) -> int:
        return self.delay.middle_ns

    @property
    def jitter_ns(self) -> int:
        return self.delay.half_width_ns or self.jitter

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_direction(self.delay, self.jitter, self.reorder)
        return self


def check_direction(delay: Span, jitter: int, reorder: float) -> None:
    """Raises Mistakes where delay, jitter (ns) and reordering do not fit each other."""
    if delay.half_width_ns and jitter:
        raise Mistakes((("jitter",), f"the range {delay.format()} is a jitter already; leave jitter out"))
    if jitter > delay.middle_ns:
        longest = DURATION.format(delay.middle_ns)
        message = f"the jitter of {DURATION.format(jitter)} is more than the delay of {longest} and would be cut at 0"
        raise Mistakes((("jitter",), f"{message}; write a jitter of at most {longest}"))
    if reorder >= 1:
        raise Mistakes((("reorder",), "leaves no packet that waits, and so no delay; write less than 100%"))
    if reorder and not delay.middle_ns:
        raise Mistakes((("reorder",), "needs packets that wait; write a delay, or leave reorder out"))


def load_profile(name: str, beside: Path | None = None) -> Profile:
    """The profile that a file `beside` (a topology) means by `name`: a path relative to it, a file of the directory
    `netem_profiles` next to it, or a shipped profile. Raises SpecError."""
    path = resolve("profile", name, beside)
    profile = load(path, Profile)
    if profile.name != path.stem:
        raise profile.error([(("name",), f"is not the file's name; write `name: {path.stem}`")])
    return profile
