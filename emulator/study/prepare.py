"""From the files a person names to the plan and the program: what every study begins with."""

from collections.abc import Sequence

import msgspec

from emulator.plan.build import build
from emulator.plan.model import Plan
from emulator.spec.links import links, load_profiles
from emulator.spec.load import load
from emulator.spec.protocol import load_protocol
from emulator.spec.shipped import resolve
from emulator.spec.topology import Topology
from emulator.spec.workload import Workload
from emulator.workload.program import Program, program
from emulator.workload.protocol import protocol


def read_plan(
    file: str,
    *,
    cluster: str | None = None,
    ignore_ports: bool = False,
    force: bool = False,
    seed: int = 1,
    cpu_speed: float | None = None,
    ideal: bool = False,
) -> Plan:
    """The plan of a topology, given as a file or by the name of a shipped one. Raises SpecError.

    `cluster` is by default the topology's name; `ideal` leaves out jitter, loss, duplication and reordering.
    """
    topology = load(resolve("topology", file), Topology)
    cables = links(topology, load_profiles(topology), ignore_ports=ignore_ports, force=force)
    plan = build(topology, cables, cluster=cluster or topology.name, run_seed=seed, cpu_speed=cpu_speed)
    return plan.ideal if ideal else plan


def read_program(plan: Plan, workload: str, *, tokens: int | None = None, settings: Sequence[str] = ()) -> Program:
    """The program of a workload, given as a file or by name, on `plan`. Raises SpecError.

    `settings` are `key=value`, each put into the file's place of that name.
    """
    changes = [*settings, *([f"tokens={tokens}"] if tokens is not None else [])]
    written = load(resolve("workload", workload), Workload, changes)
    found = program(plan, written)
    if written.protocol:
        found = msgspec.structs.replace(found, protocol=protocol(load_protocol(written.protocol)))
    return found
