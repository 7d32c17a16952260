"""From the files a person names to the plan and the program: what every study begins with."""

from collections.abc import Sequence

import msgspec

from emulator.errors import UsageError
from emulator.plan.build import build
from emulator.plan.model import Plan
from emulator.spec.links import links, load_profiles
from emulator.spec.load import load
from emulator.spec.protocol import load_protocol
from emulator.spec.shipped import resolve
from emulator.spec.topology import Topology
from emulator.spec.units import BYTES
from emulator.spec.workload import Workload
from emulator.workload.program import Program, program
from emulator.workload.protocol import Protocol, protocol
from emulator.workload.run import pinned_bytes

ROOM_BYTES = 512 << 20
"""Of a guest's memory, besides what its nodes pin."""


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


def under(program: Program, protocol: Protocol) -> Program:
    """The program under a protocol. Raises UsageError where its path does not lead from node to node."""
    if protocol.user_space and (far := next((one for one in program.connections if not one.a_port), None)):
        a, b = program.team.nodes[far.a], program.team.nodes[far.b]
        raise UsageError(
            f"protocol {protocol.name} takes a user-space path, whose frames no node passes on, and other nodes lie "
            f"between {a} and {b}; take a workload or a topology in which a cable or a switch joins them"
        )
    return msgspec.structs.replace(program, protocol=protocol)


def memory_for(program: Program, memory: str) -> str:
    """A guest's memory: `memory`, or more where the nodes of the program pin so much. Raises UsageError."""
    try:
        given = BYTES.parse(memory)
    except ValueError as error:
        raise UsageError(f"--memory: {error}") from None
    pinned = pinned_bytes(program)
    return f"{max(given, pinned + ROOM_BYTES) >> 20}MiB" if pinned else memory


def read_program(plan: Plan, workload: str, *, tokens: int | None = None, settings: Sequence[str] = ()) -> Program:
    """The program of a workload, given as a file or by name, on `plan`. Raises SpecError.

    `settings` are `key=value`, each put into the file's place of that name.
    """
    changes = [*settings, *([f"tokens={tokens}"] if tokens is not None else [])]
    written = load(resolve("workload", workload), Workload, changes)
    found = program(plan, written)
    if written.protocol:
        found = under(found, protocol(load_protocol(written.protocol)))
    return found
