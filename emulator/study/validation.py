"""`docs/validation.md`: what predictions are worth, held against published measurements.

    python -m emulator.study.validation [FILE]

Runs every study on the guest's virtual clock, so that two runs write the same page. Nothing is tuned on what is
predicted: each figure that is fitted is fitted on the points that say so.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from emulator.place.choose import choose
from emulator.study.engine import ENGINES, Per
from emulator.study.experts import exchanges, section
from emulator.study.predict import Ask, Laboratory, Prediction, predict
from emulator.study.published import Point, published

HEAD = """# Validation

What `emu predict` says, held against what others measured. Made by `make validation`; do not edit.

*fitted*: the figure was used to set the efficiency (the share of memory bandwidth that a node reaches) or the one free
cost (per all-reduce, or per message of each sender). *predicted*: it was not, and the error is that of the prediction.
Every communication time was measured: the engine's pattern, run over emulated cables on the virtual clock, without
jitter. Points and sources: `emulator/study/published.yaml`; models: `workloads/models`; cables: `netem_profiles`.
"""


class Study(NamedTuple):
    """One engine on one cluster."""

    title: str
    engine: str
    fitted: tuple[str, ...]
    """Published points."""
    predicted: tuple[str, ...]
    """Published points that nothing was fitted on."""
    unpublished: tuple[tuple[str, str], ...] = ()
    """Models and topologies for which there is nothing to hold it against."""
    cost_per: Per | None = None
    comment: str = ""


STUDIES = (
    Study(
        "exo, tensor parallel, RDMA over Thunderbolt 5: one cost per all-reduce",
        "exo-tensor",
        ("exo-qwen3-235b-1", "exo-qwen3-235b-2"),
        ("exo-qwen3-235b-4", "exo-deepseek-4", "exo-kimi-k2-4"),
        comment="The cables' part of an all-reduce is 4 to 9 us; the rest is the hosts' work, and "
        "computing that is not split. Published, it grows from two nodes to four, which one cost per "
        "all-reduce cannot do: the prediction for four nodes is too high.",
    ),
    Study(
        "The same with one cost per message",
        "exo-tensor",
        ("exo-qwen3-235b-1", "exo-qwen3-235b-2"),
        ("exo-qwen3-235b-4", "exo-deepseek-4", "exo-kimi-k2-4"),
        cost_per="message",
        comment="On four nodes each sends three messages for an all-reduce, one after the other, on two only one: too "
        "low now. The published figure lies between the two, as it would if some of the cost were per all-reduce and "
        "some per message. Two free costs could be fitted on two and four nodes, and then nothing would be predicted.",
    ),
    Study(
        "llama.cpp RPC, TCP over Thunderbolt 5",
        "llama.cpp-rpc",
        ("llama.cpp-qwen3-235b-1", "llama.cpp-qwen3-235b-2"),
        ("llama.cpp-qwen3-235b-4",),
        comment="A star that visits three remote nodes in turn pays three times what it pays for one. Published, it is "
        "1.85 times: so a part of the cost goes with a node's share of the layers, and not with its messages.",
    ),
    Study(
        "distributed-llama, four Raspberry Pi 5 on a 1 Gbit/s switch",
        "distributed-llama",
        ("dllama-r1-distill-8b-4",),
        ("dllama-qwen3-30b-4", "dllama-qwen3-30b-4-255"),
        unpublished=(("llama-3-70b", "switch4-gbe"),),
        comment="The efficiency is fitted on the published 111.6 ms of prediction, the free cost on the 16.4 ms of "
        "synchronisation. For Qwen3-30B, a mixture of experts, the efficiency of a dense model is taken, which is "
        "too favourable where small matrices read memory less well. Llama 3 70B has nothing to be held against.",
    ),
)

PUBLISHED_KB = ("864", "1191")
"""What the root of distributed-llama sent and received for a token of R1-Distill-8B, in units of 1024 bytes."""


def page(lab: Laboratory) -> str:
    """The page, after running all studies. Raises what a run raises."""
    parts = [HEAD]
    root: Prediction | None = None
    for study in STUDIES:
        found = [(point, _predict(lab, study, point.model, point.topology, point.nodes)) for point in _points(study)]
        alone = [_predict(lab, study, model, topology, None) for model, topology in study.unpublished]
        parts.append("\n".join(_section(study, found, alone)))
        if study.engine == "distributed-llama":
            root = _predict(lab, study, "r1-distill-8b", "switch4-gbe", None)
    assert root is not None
    sent, received = root.bytes_per_token["n0"].sent, root.bytes_per_token["n0"].received
    parts.append(
        "## Bytes\n\nR1-Distill-8B with distributed-llama on four nodes, at the root, for each token:\n\n"
        "| | published, kB of 1024 bytes | counted by the run, bytes | in kB |\n|---|---:|---:|---:|\n"
        f"| sent | {PUBLISHED_KB[0]} | {sent:,} | {sent / 1024:.2f} |\n"
        f"| received | {PUBLISHED_KB[1]} | {received:,} | {received / 1024:.2f} |"
    )
    parts.append(section(exchanges(lab.choice, lab.progress)))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _points(study: Study) -> list[Point]:
    return [Point.find(name) for name in study.predicted]


def _predict(lab: Laboratory, study: Study, model: str, topology: str, nodes: int | None) -> Prediction:
    fits = [Point.find(name) for name in study.fitted]
    return predict(lab, Ask(study.engine, model, topology, nodes, cost_per=study.cost_per), fits)


def _section(study: Study, found: list[tuple[Point, Prediction]], alone: list[Prediction]) -> Iterator[str]:
    first = found[0][1]
    yield f"## {study.title}\n"
    description = ENGINES[study.engine].description
    yield f"{description[0].upper()}{description[1:]} ({ENGINES[study.engine].source})."
    yield (
        f"Efficiency {first.efficiency:.1%}; free cost per {first.free_cost_per} {first.free_cost_ns / 1000:,.1f} us.\n"
    )
    yield "| | model | nodes | published tokens/s | emu tokens/s | error | compute ms | communication ms |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    points = {point.id: point for point in published()}
    for fit in first.fitted:
        point = points[fit.point]
        yield (
            f"| fitted ({fit.figure}) | {point.model} | {point.nodes} | {fit.published_tokens_per_second:.2f} "
            f"| {fit.tokens_per_second:.2f} | {fit.error:+.1%} | | |"
        )
    for point, one in found:
        error = one.tokens_per_second * point.token_ns / 1e9 - 1
        yield _row("predicted", one, f"{1e9 / point.token_ns:.2f}", f"**{error:+.1%}**")
    for one in alone:
        yield _row("predicted", one, "none", "")
    yield f"\n{study.comment}\n"
    for name in (*study.fitted, *study.predicted):
        note = f"; {points[name].note}" if points[name].note else ""
        yield f"- {name}: {points[name].source}{note}"


def _row(kind: str, one: Prediction, known: str, error: str) -> str:
    return (
        f"| {kind} | {one.model} | {one.nodes} | {known} | {one.tokens_per_second:.2f} | {error} "
        f"| {one.compute_time_ns / 1e6:.2f} | {one.communication_time_ns / 1e6:.2f} |"
    )


def main() -> None:
    """Writes the page to the file named on the command line, by default docs/validation.md."""
    file = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/validation.md")
    with Laboratory(choose("guest", "virtual"), lambda _what, _share: None) as lab:
        file.write_text(page(lab))


if __name__ == "__main__":
    main()
