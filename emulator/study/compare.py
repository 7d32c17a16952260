"""Comparisons: results that were saved, and topologies that are measured now, side by side."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from emulator.errors import WorkloadError
from emulator.place.choose import Choice
from emulator.place.cluster import Progress
from emulator.spec.tree import read
from emulator.study.bench import Wish, bench_topology
from emulator.workload.result import Result, decode

MAX_BYTES = 64 << 20
"""Of a file of results: 10,000 cables take some 15 MB."""
MAX_RESULTS = 1000
"""In one file."""
TOPOLOGY_ENDINGS = (".yaml", ".yml")


def compare(targets: Sequence[str], choose: Callable[[], Choice], wish: Wish, progress: Progress) -> list[Result]:
    """The results of all `targets`, in their order.

    A target is a file that `emu bench` or `emu compare` wrote, or `TOPOLOGY[=WORKLOAD][@PROTOCOL]`; what is left out is
    as in `wish`. All files are read before anything runs, and `choose` is asked only where something does. Raises
    WorkloadError where a file holds no results, SpecError, and what a run raises.
    """
    saved = {target: read_results(Path(target)) for target in targets if is_result(target)}
    results: list[Result] = []
    for target in targets:
        results += saved[target] if target in saved else [_run(target, choose(), wish, progress)]
    return results


def is_result(target: str) -> bool:
    """Whether a target names a file of results: one that is there, and no topology's by its ending; or `*.json`."""
    path = Path(target)
    return path.suffix == ".json" or (path.is_file() and path.suffix not in TOPOLOGY_ENDINGS)


def read_results(file: Path) -> list[Result]:
    """The result, or the list of results, in a file. Raises WorkloadError that names the file, and SpecError where it
    cannot be read."""
    data = read(file, MAX_BYTES, "JSON")
    if len(data) > MAX_BYTES:
        raise WorkloadError(f"{file}: is larger than {MAX_BYTES >> 20} MiB; is it the result you meant?")
    try:
        parts = msgspec.json.decode(data, type=list[msgspec.Raw]) if data.lstrip()[:1] == b"[" else [data]
        results = [decode(bytes(part)) for part in parts[: MAX_RESULTS + 1]]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WorkloadError(f"{file}: this is no result of emu: {error}; make one with `emu bench -o`") from None
    except WorkloadError as error:
        raise WorkloadError(f"{file}: {error}") from None
    if not 1 <= len(results) <= MAX_RESULTS:
        raise WorkloadError(f"{file}: holds no result, or more than {MAX_RESULTS}; make one with `emu bench -o`")
    return results


def parts(target: str) -> tuple[str, str, str]:
    """Topology, workload and protocol of `TOPOLOGY[=WORKLOAD][@PROTOCOL]`; empty where left out."""
    if Path(target).is_file():
        return target, "", ""
    rest, _, protocol = target.partition("@")
    topology, _, workload = rest.partition("=")
    return topology, workload, protocol


def _run(target: str, choice: Choice, wish: Wish, progress: Progress) -> Result:
    topology, workload, protocol = parts(target)
    settings = (*wish.settings, *([f"protocol={protocol}"] if protocol else []))
    wanted = wish._replace(workload=workload or wish.workload, settings=settings)
    return bench_topology(topology, choice, wanted, progress)
