"""The program: what each node will do, with every number worked out. A pure function of plan and workload.

It is made on the host, where bad input is refused, and carried into the place where the cluster stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from emulator.workload.connection import Connection, Wiring
from emulator.workload.patterns import Team, load_pattern, names
from emulator.workload.protocol import Protocol

if TYPE_CHECKING:
    from emulator.plan.model import Plan
    from emulator.spec.workload import Workload

PATIENCE_NS = 30_000_000_000


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What `run` executes."""

    workload: str
    description: str
    pattern: str
    parameters: dict[str, int | str]
    """Of the pattern, defaults filled in."""
    team: Team
    tokens: int
    warmup_tokens: int
    compute_ns: tuple[int, ...]
    """What each node of the team computes for each token; slept."""
    ahead_bytes: int
    """What a node may send over one connection before it receives."""
    connections: tuple[Connection, ...]
    protocol: Protocol | None = None
    """What messages cost above their cables; None: nothing."""

    @property
    def stall_ns(self) -> int:
        """A node that makes no progress for this long has stalled: 30 s, or many times the slowest message."""
        slowest = max(
            way.expected_ns(self.team.payload_bytes) for c in self.connections for way in (c.a_to_b, c.b_to_a)
        )
        return PATIENCE_NS + 100 * (slowest + max(self.compute_ns))


def encode(program: Program) -> bytes:
    """The program as one line of JSON."""
    return msgspec.json.encode(program)


def decode(data: bytes) -> Program:
    """The program that `encode` wrote. Raises msgspec.ValidationError on anything else."""
    return msgspec.json.decode(data, type=Program)


def program(plan: Plan, workload: Workload) -> Program:
    """The program of `workload` on `plan`. Raises SpecError where they do not fit each other."""
    team = _team(plan, workload)
    try:
        pattern = load_pattern(workload.pattern, workload.parameters)
    except ValueError as error:
        key = "parameters" if workload.pattern in names() else "pattern"
        raise workload.error([((key,), str(error))]) from None
    try:
        pairs = sorted(pattern.connections(team))
        wiring = Wiring(plan)
        connections = tuple(wiring.connect(team.nodes, a, b, plane) for a, b, plane in pairs)
    except ValueError as error:
        raise workload.error([(("pattern",), f"{error} (topology {plan.topology})")]) from None
    return Program(
        workload=workload.name,
        description=workload.description,
        pattern=workload.pattern,
        parameters=msgspec.structs.asdict(pattern),
        team=team,
        tokens=workload.tokens,
        warmup_tokens=workload.warmup_tokens,
        compute_ns=_compute(workload, team),
        ahead_bytes=pattern.ahead_bytes(team),
        connections=connections,
    )


def _compute(workload: Workload, team: Team) -> tuple[int, ...]:
    if isinstance(workload.compute_per_node, int):
        return (workload.compute_per_node,) * len(team.nodes)
    times = workload.compute_times
    if missing := [name for name in team.nodes if name not in times]:
        mistake = f"`{missing[0]}` takes part and has no compute time; write `{missing[0]}: 0ns` or what it computes"
        raise workload.error([(("compute_per_node",), mistake)])
    if unknown := [name for name in times if name not in team.nodes]:
        mistake = f"`{unknown[0]}` does not take part; leave it out (taking part: {', '.join(team.nodes)})"
        raise workload.error([(("compute_per_node",), mistake)])
    return tuple(times[name] for name in team.nodes)


def _team(plan: Plan, workload: Workload) -> Team:
    known = [node.name for node in plan.computing]
    nodes = workload.members or tuple(known)
    if unknown := [name for name in nodes if name not in known]:
        mistake = f"topology {plan.topology} has no node `{unknown[0]}`; it has {', '.join(known)}"
        raise workload.error([(("nodes",), mistake)])
    if len(nodes) < 2:
        mistake = f"messages need two nodes, and there is {len(nodes)} (topology {plan.topology}); take a larger one"
        raise workload.error([(("nodes",), mistake)])

    def members(names: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(nodes.index(name) for name in names if name in nodes)

    return Team(
        nodes=nodes,
        groups={name: members(names) for name, names in plan.groups.items()},
        planes={name: members(names) for name, names in plan.planes.items()},
        payload_bytes=workload.payload_bytes,
    )
