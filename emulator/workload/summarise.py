"""From the stamps of a run to its result. On the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from emulator import __version__
from emulator.errors import WorkloadError
from emulator.fabric.inspect import CableState, DirectionState, Traffic
from emulator.plan.model import Plan, Shaping
from emulator.workload.fidelity import judge
from emulator.workload.patterns import load_pattern
from emulator.workload.program import Program
from emulator.workload.recording import Recording
from emulator.workload.result import CableDirection, CableResult, Result, Spread

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Stamps = NDArray[np.int64]


def summarise(
    plan: Plan,
    program: Program,
    recording: Recording,
    *,
    before: Sequence[CableState],
    after: Sequence[CableState],
    kernel: str,
    clock: Literal["virtual", "real"],
    packet_order: str,
    wall_seconds: float,
    seed: int,
    ideal: bool = False,
    warnings: Sequence[str] = (),
    overload: Sequence[str] = (),
) -> Result:
    """The result of a run.

    `before` and `after` are `fabric.inspect` around it. `warnings` are what else is to be known of the figures;
    `overload` is why they are not to be trusted (`fidelity.HostWatch`). Raises WorkloadError where the recording is not
    whole.
    """
    import numpy as np

    starts, ends = token_times(recording, program)
    token_ns = ends - starts
    compute_ns = load_pattern(program.pattern, program.parameters).compute_on_path_ns(program.team, program.compute_ns)
    delays, requested, sizes = _exchanges(program, recording)
    return Result(
        emu_version=__version__,
        topology=plan.topology,
        workload=program.workload,
        pattern=program.pattern,
        parameters=program.parameters,
        nodes=program.team.nodes,
        payload_bytes=program.team.payload_bytes,
        protocol=program.protocol.name if program.protocol else "",
        kernel=kernel,
        clock=clock,
        seed=seed,
        ideal=ideal,
        packet_order=packet_order,
        tokens=program.tokens,
        tokens_per_second=program.tokens * 1e9 / float(ends[-1] - recording.start_ns),
        token_time_ns=spread(token_ns),
        communication_time_ns=spread(token_ns - compute_ns),
        exchange_delay_ns=spread(delays),
        exchange_requested_ns=spread(requested),
        compute_time_ns=compute_ns,
        exchanges=len(delays),
        message_bits_per_second=float(np.median(sizes * 8e9 / delays)),
        retransmissions=sum(link.retransmissions for node in recording.nodes for link in node.links),
        cables=_cables(plan, before, after, _carrying_ns(recording, int(ends[-1]))),
        fidelity=judge(program, recording, clock, float(np.median(delays / requested)), warnings, overload),
        wall_seconds=wall_seconds,
    )


def stamps(data: bytes) -> Stamps:
    import numpy as np

    return np.frombuffer(data, dtype="<i8")


def token_times(recording: Recording, program: Program) -> tuple[Stamps, Stamps]:
    """Start and end of each token. A token starts when the first node that ended the one before goes on to it."""
    import numpy as np

    every = np.array([stamps(node.ends_ns) for node in recording.nodes if node.ends_ns])
    if every.shape != (len(program.team.nodes), program.tokens):
        raise WorkloadError(f"the recording holds not all of {program.tokens} tokens; run it again")
    ends = every.max(axis=0)
    first = np.where(every > 0, every, np.iinfo(np.int64).max).min(axis=0)
    return np.concatenate(([recording.start_ns], first[:-1])), ends


def _exchanges(program: Program, recording: Recording) -> tuple[Stamps, Stamps, Stamps]:
    """Of all messages: measured delay, requested delay, bytes."""
    import numpy as np

    payload = program.team.payload_bytes
    links = {(node, link.connection): link for node, record in enumerate(recording.nodes) for link in record.links}
    delays: list[Stamps] = []
    requested: list[Stamps] = []
    all_sizes: list[Stamps] = []
    for number, connection in enumerate(program.connections):
        for sender, receiver in ((connection.a, connection.b), (connection.b, connection.a)):
            sent, received = stamps(links[sender, number].sent_ns), stamps(links[receiver, number].received_ns)
            if len(sent) != len(received):
                names = program.team.nodes
                raise WorkloadError(
                    f"{len(sent)} messages left {names[sender]} and {len(received)} came to {names[receiver]}"
                )
            delays.append(received - sent)
            sizes = stamps(links[sender, number].sizes) if links[sender, number].sizes else np.full(len(sent), payload)
            all_sizes.append(sizes)
            way = connection.sent_by(sender)
            kinds, kind = np.unique(sizes, return_inverse=True)
            expected = [way.expected_ns(int(size)) for size in kinds]
            if program.protocol:
                back = connection.sent_by(receiver)
                charged = [program.protocol.expected_ns(int(size), way, back) for size in kinds]
                expected = [a + b for a, b in zip(expected, charged, strict=True)]
            requested.append(np.array(expected, dtype=np.int64)[kind])
    return np.concatenate(delays), np.concatenate(requested), np.concatenate(all_sizes)


def spread(values: Stamps) -> Spread:
    import numpy as np

    p50, p90, p99 = (int(np.percentile(values, share, method="inverted_cdf")) for share in (50, 90, 99))
    return Spread(min=int(values.min()), p50=p50, p90=p90, p99=p99, max=int(values.max()), mean=float(values.mean()))


def _carrying_ns(recording: Recording, ended_ns: int) -> int:
    """How long the cables were in use: the warm-up of the node that took longest, and the run."""
    return max(node.warm_up_ns for node in recording.nodes) + ended_ns - recording.start_ns


def _cables(
    plan: Plan, before: Sequence[CableState], after: Sequence[CableState], time_ns: int
) -> tuple[CableResult, ...]:
    return tuple(
        CableResult(
            a=cable.a.node,
            b=cable.b.node,
            plane=cable.plane,
            profile=cable.profile,
            mtu=cable.mtu,
            a_to_b=_direction(cable.a.egress, was.a_to_b, now.a_to_b, time_ns),
            b_to_a=_direction(cable.b.egress, was.b_to_a, now.b_to_a, time_ns),
        )
        for cable, was, now in zip(plan.cables, before, after, strict=True)
    )


def _direction(requested: Shaping, was: DirectionState, now: DirectionState, time_ns: int) -> CableDirection:
    carried = now.traffic.bytes - was.traffic.bytes
    return CableDirection(
        sender=now.sender,
        receiver=now.receiver,
        requested=requested,
        held=now.held,
        traffic=Traffic(
            bytes=carried,
            packets=now.traffic.packets - was.traffic.packets,
            queued_packets=now.traffic.queued_packets,
            drops=now.traffic.drops - was.traffic.drops,
            receive_drops=now.traffic.receive_drops - was.traffic.receive_drops,
        ),
        utilisation=8e9 * carried / requested.rate_bps / time_ns,
    )
