"""Expert dispatch and combine, held against what DeepEP's low-latency kernels were measured at.

Published (github.com/deepseek-ai/DeepEP docs/legacy.md): 128 tokens on each GPU, hidden 7168, the best 8 of 256
experts, FP8 there and 16 bit back, H800 machines of eight GPUs, an adapter of 400 Gbit/s for each. Messages take the
user-space path, as RDMA does: TCP's windows, which many senders to one fill and empty, are no part of it.
"""

import os
from collections.abc import Iterator, Sequence

import msgspec

from emulator.place.choose import Choice
from emulator.place.cluster import Progress
from emulator.place.life import temporary
from emulator.spec.protocol import load_protocol
from emulator.study.measure import measure
from emulator.study.prepare import memory_for, read_plan, read_program, under
from emulator.workload.protocol import protocol

PUBLISHED_US = {
    "dispatch": {8: 77, 16: 118, 32: 155},
    "combine": {8: 114, 16: 195, 32: 273},
}
FITTED = ("dispatch", 8)
"""The one point that the free cost of an exchange is fitted on: GPUs' own work, which no cable knows of."""
TOKENS = 3
MEMORY = "6GiB"
SOURCE = "github.com/deepseek-ai/DeepEP, docs/legacy.md"


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A dispatch or a combine among so many nodes."""

    phase: str
    nodes: int
    published_us: float
    cables_us: float
    """Measured: the median time until the last node has all."""
    free_cost_us: float
    fitted: bool

    @property
    def total_us(self) -> float:
        return self.cables_us + self.free_cost_us

    @property
    def error(self) -> float:
        """As a share of what was published."""
        return self.total_us / self.published_us - 1


def exchanges(choice: Choice, progress: Progress, sizes: Sequence[int] = (8, 16, 32)) -> list[Exchange]:
    """Measures dispatch and combine among so many nodes each. Raises what a run raises."""
    found = {(phase, nodes): time for nodes in sizes for phase, time in _measured(choice, progress, nodes)}
    cost = PUBLISHED_US[FITTED[0]][FITTED[1]] - found[FITTED]
    return [
        Exchange(
            phase=phase,
            nodes=nodes,
            published_us=PUBLISHED_US[phase][nodes],
            cables_us=found[phase, nodes],
            free_cost_us=cost,
            fitted=(phase, nodes) == FITTED,
        )
        for phase in PUBLISHED_US
        for nodes in sizes
    ]


def _measured(choice: Choice, progress: Progress, nodes: int) -> Iterator[tuple[str, float]]:
    """The time of each phase on the cluster of that many GPUs."""
    topology = f"h800-{nodes}"
    plan = read_plan(topology, cluster=f"experts-{os.getpid()}", ideal=True)
    rdma = msgspec.structs.replace(protocol(load_protocol("rdma")), pin="never", region_bytes=0, region_ns=0)
    settings = ("parameters.within=nvlink", "parameters.across=network", "warmup_tokens=1")
    programs = {
        phase: under(
            read_program(plan, "expert-parallel", tokens=TOKENS, settings=(*settings, f"parameters.phase={phase}")),
            rdma,
        )
        for phase in PUBLISHED_US
    }
    memory = memory_for(programs["dispatch"], MEMORY)
    with temporary(plan, choice, file=topology, memory=memory, seed=1, ideal=True, progress=progress) as cluster:
        for phase, program in programs.items():
            result = measure(cluster, program, limit_s=300, progress=progress)
            yield phase, result.token_time_ns.p50 / 1000


def section(found: Sequence[Exchange]) -> str:
    """The part of docs/validation.md."""
    lines = [
        "## Expert dispatch and combine, DeepEP on H800 at 400 Gbit/s",
        "",
        "Each token to the nodes of its 8 experts and back, one layer, over NVLink within a machine of eight and",
        "400 Gbit/s between machines (topologies h800-8, -16, -32), on the user-space path. Free cost of an exchange",
        f"{found[0].free_cost_us:.1f} us, fitted on one point: what GPUs do besides sending. The rates of the cables",
        "are the source's; the delay of NVLink is assumed, and makes less than a microsecond.",
        "",
        "| | exchange | EP | published us | emu us | error | of it cables us |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    errors = [f"{one.error:+.1%}" if one.fitted else f"**{one.error:+.1%}**" for one in found]
    lines += [
        f"| {'fitted' if one.fitted else 'predicted'} | {one.phase} | {one.nodes} | {one.published_us:.0f} "
        f"| {one.total_us:.1f} | {error} | {one.cables_us:.1f} |"
        for one, error in zip(found, errors, strict=True)
    ]
    return "\n".join([*lines, "", f"- {SOURCE}"])
