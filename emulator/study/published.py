"""Published measurements, each with its source: what predictions are fitted on and held against."""

from pathlib import Path
from typing import Annotated, Self

import msgspec

from emulator.errors import SpecError
from emulator.spec.load import suggest

FILE = Path(__file__).with_name("published.yaml")


class Point(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an engine reached with a model on some nodes."""

    id: str
    engine: str
    model: str
    topology: str
    nodes: Annotated[int, msgspec.Meta(ge=1)]
    source: str
    tokens_per_second: float | None = None
    compute_ms: float | None = None
    """Of a token; with `communication_ms`, in place of `tokens_per_second`."""
    communication_ms: float | None = None
    note: str = ""

    @property
    def token_ns(self) -> float:
        if self.tokens_per_second is not None:
            return 1e9 / self.tokens_per_second
        return ((self.compute_ms or 0) + (self.communication_ms or 0)) * 1e6

    @property
    def compute_ns(self) -> float | None:
        """Where it is known apart from the token time."""
        if self.nodes == 1:
            return self.token_ns
        return None if self.compute_ms is None else self.compute_ms * 1e6

    @classmethod
    def parse(cls, text: str, engine: str, model: str, topology: str) -> Self:
        """The point that `--fit` names: a published one by its id, or NODES=TOKENS_PER_SECOND for this engine, model
        and topology. Raises SpecError."""
        nodes, equals, rate = text.partition("=")
        if not equals:
            return cls.find(text)
        try:
            made = cls(
                id=text, engine=engine, model=model, topology=topology, nodes=int(nodes),
                tokens_per_second=float(rate), source="the command line",
            )  # fmt: skip
            if made.nodes >= 1 and made.tokens_per_second and 0 < made.tokens_per_second < float("inf"):
                return made
        except ValueError:
            pass
        raise SpecError(f"--fit {text[:60]}: write NODES=TOKENS_PER_SECOND, as 2=26.2, or the id of a published point")

    @classmethod
    def find(cls, name: str) -> Self:
        known = {point.id: point for point in published()}
        if name not in known:
            raise SpecError(f"unknown published point `{name[:100]}`; {suggest(name, known)}")
        found = known[name]
        assert isinstance(found, cls)
        return found


def published() -> list[Point]:
    """All of them, in the order of the file."""
    return msgspec.yaml.decode(FILE.read_bytes(), type=list[Point])
