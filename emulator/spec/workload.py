"""A workload as a person writes it: a pattern of messages for each token, with its sizes and times."""

from typing import Annotated, Self

from pydantic import Discriminator, Field, StrictInt, StrictStr, Tag, model_validator

from emulator.spec.load import Document, Mistakes
from emulator.spec.names import expand
from emulator.spec.profile import Text
from emulator.spec.units import Bytes, Duration, Precision

MAX_PAYLOAD_BYTES = 1 << 40

ComputeTime = Annotated[
    Annotated[Duration, Tag("each")] | Annotated[dict[str, Duration], Tag("by-node")],
    Discriminator(lambda value: "by-node" if isinstance(value, dict) else "each"),
]
"""One duration for each node, or one for each name or range of nodes."""


class Workload(Document):
    """What each node sends, and to whom, is the pattern's matter: `emulator/workload/patterns`, one file for each."""

    name: Text
    """The file's name without `.yaml`."""
    description: Text
    pattern: Text
    """chain, pipeline, all-reduce-mesh, all-reduce-ring, aggregate, bulk: a file in `emulator/workload/patterns`."""
    parameters: dict[str, StrictInt | StrictStr] = Field(default_factory=dict)
    """Of the pattern: `exchanges` for a chain, `times` for an all-reduce, `within` and `across` for an aggregate."""
    payload: Bytes | None = None
    """Of each message, or of the vector of an all-reduce."""
    hidden_size: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """In place of `payload`: values of a hidden state, each of `precision`."""
    precision: Precision | None = None
    compute_per_node: ComputeTime = 0
    """What each node that a token reaches computes for it; slept. Nodes that differ: `{n0: 5ms, n1..n3: 4ms}`."""
    protocol: Text | None = None
    """What messages cost above their cables: a name or file of `protocols`; left out: nothing."""
    nodes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """The nodes that take part, in the pattern's order, by name or range (`n0..n3`); left out: all of the topology."""
    tokens: Annotated[int, Field(ge=1, le=10_000_000)] = 200
    """Measured."""
    warmup_tokens: Annotated[int, Field(ge=0, le=1_000_000)] = 10
    """Before them, not measured."""

    @property
    def payload_bytes(self) -> int:
        if self.payload is not None:
            return self.payload
        assert self.hidden_size is not None
        assert self.precision is not None
        return self.hidden_size * self.precision // 8

    @property
    def members(self) -> tuple[str, ...]:
        """`nodes` with ranges written out; empty: all."""
        return tuple(name for entry in self.nodes or () for name in expand(entry))

    @property
    def compute_times(self) -> dict[str, int]:
        """A mapping `compute_per_node` with ranges written out."""
        times = self.compute_per_node if isinstance(self.compute_per_node, dict) else {}
        return {name: time for entry, time in times.items() for name in expand(entry)}

    @model_validator(mode="after")
    def _check(self) -> Self:
        sized = self.hidden_size is not None or self.precision is not None
        if self.payload is not None and sized:
            raise Mistakes((("payload",), "is given, and hidden_size and precision too; leave one or the others out"))
        if self.payload is None and (self.hidden_size is None or self.precision is None):
            raise Mistakes(((), "says no size; write `payload: 14336B`, or both hidden_size and precision"))
        if self.payload is None and self.hidden_size is not None and self.hidden_size * (self.precision or 0) % 8:
            raise Mistakes((("hidden_size",), "times precision is no whole number of bytes; write a multiple of 8"))
        if not 1 <= self.payload_bytes <= MAX_PAYLOAD_BYTES:
            raise Mistakes((("payload",), f"is {self.payload_bytes} bytes; write 1B to 1TiB"))
        members = self.members
        if twice := next((name for name in members if members.count(name) > 1), None):
            raise Mistakes((("nodes",), f"names `{twice}` twice; name each node once"))
        times = self.compute_per_node if isinstance(self.compute_per_node, dict) else {}
        timed = [name for entry in times for name in expand(entry)]
        if twice := next((name for name in timed if timed.count(name) > 1), None):
            raise Mistakes((("compute_per_node",), f"names `{twice}` twice; name each node once"))
        return self
