"""Running a program where the cluster stands: one process for each node, a common start, all stamps in one recording.

The processes are forks of this one, so that nothing is loaded twice, and end with it. Each has a pipe to this process:
a byte when it has warmed up, its record or what went wrong at the end. What each has done is in shared memory, which
costs no system call: for each node, messages received so far, and the node it waits for plus 1.
"""

import contextlib
import gc
import mmap
import os
import select
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic_ns
from typing import NoReturn

import msgspec

from emulator.errors import WorkloadError
from emulator.linux import CLONE_NEWNET, set_cpu_speed, set_parent_death_signal, set_timer_slack, setns, sleep_until
from emulator.plan.event import TimedPlan
from emulator.plan.model import Plan
from emulator.workload.node import Node
from emulator.workload.program import Program
from emulator.workload.recording import NodeRecord, Recording
from emulator.workload.sockets import connect, namespace_descriptors
from emulator.workload.transport import under_protocol
from emulator.workload.userspace import Endpoint

ALIGNMENT_NS = 100_000_000
"""The common start is at a multiple of this, so that two runs meet the same timer ticks of the kernel."""
MARGIN_NS = 20_000_000
"""Time for all processes to wake up before the start."""
LOOK_MS = 1000
ROOM_BYTES = 64 << 20
"""Of memory, besides what nodes pin, that running takes."""

READY, ENDED, DONE, FAILED = b"r", b"e", b"d", b"f"

ProgressCallback = Callable[[str, float], None]
"""What is being done, and the share of it that is done, 0 to 1."""


class Child:
    """A node's process, seen from the coordinator."""

    def __init__(self, name: str, pid: int, pipe: int) -> None:
        self.name, self.pid, self.pipe = name, pid, pipe
        self.data = b""
        self.ended = False

    def failure(self) -> str:
        """Why this process ended without a record; empty if it did not."""
        said = self.data.removeprefix(READY).removeprefix(ENDED)
        if not self.ended or said.startswith(DONE):
            return ""
        if said.startswith(FAILED):
            return said[1:].decode(errors="replace")
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = 0
        return f"its process was ended by signal {-status}" if status < 0 else f"its process ended with status {status}"


def run(
    plan: Plan,
    program: Program,
    recording: Path,
    progress: ProgressCallback | None = None,
    events: Sequence[TimedPlan] = (),
) -> Recording:
    """Runs `program` on the standing cluster of `plan` and saves the stamps to `recording`.

    `events` change the cables while it runs; the plan is in force again at the end.
    Raises WorkloadError that names the node and the reason where a process ends early, a message is wrong, or nothing
    moves for `program.stall_ns`. No process is left, however this ends.
    """
    _check_memory(program)
    namespaces = namespace_descriptors(plan, program.team.nodes)
    shared = mmap.mmap(-1, 16 * len(namespaces))
    signs = memoryview(shared).cast("Q")
    children: list[Child] = []
    start_read, start_write = os.pipe()
    changing = 0
    try:
        # Connections, too, begin at a tick: what TCP does at first depends on where between two ticks it is.
        sleep_until(-(-monotonic_ns() // ALIGNMENT_NS) * ALIGNMENT_NS)
        sockets = connect(program, namespaces)
        gc.collect()
        gc.freeze()
        for index in range(len(namespaces)):
            speed = plan.node(program.team.nodes[index]).cpu_speed
            children.append(_fork(program, index, namespaces[index], sockets[index], signs, start_read, speed))
        for owned in sockets:
            for sock in owned.values():
                sock.close()
        _wait(program, children, signs, progress, lambda child: child.data == READY)
        start_ns = -(-(monotonic_ns() + MARGIN_NS) // ALIGNMENT_NS) * ALIGNMENT_NS
        if events:
            changing = _fork_changes(plan, events, start_ns)
        os.write(start_write, start_ns.to_bytes(8, "little") * len(children))
        # None does more than wait while others still measure: what it did would cost them time on the virtual clock.
        _wait(program, children, signs, progress, lambda child: child.data == READY + ENDED)
        os.write(start_write, bytes(8) * len(children))
        _wait(program, children, signs, progress, lambda child: child.ended)
    finally:
        _end(children)
        if changing:
            _end_changes(plan, events, changing)
        gc.unfreeze()
        for descriptor in (start_read, start_write, *namespaces):
            os.close(descriptor)
    nodes = tuple(msgspec.msgpack.decode(child.data[3:], type=NodeRecord) for child in children)
    result = Recording(start_ns=start_ns, ended_ns=monotonic_ns(), nodes=nodes)
    result.save(recording)
    return result


def pinned_bytes(program: Program) -> int:
    """What all nodes together pin before the first token."""
    return program.protocol.region_bytes * len(program.team.nodes) if program.protocol else 0


def _check_memory(program: Program) -> None:
    """A kernel whose memory is all pinned stands still. Raises WorkloadError."""
    pinned = pinned_bytes(program)
    available = next(
        int(line.split()[1]) << 10
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemAvailable:")
    )
    if pinned and pinned + ROOM_BYTES > available:
        raise WorkloadError(
            f"{len(program.team.nodes)} nodes pin {pinned >> 20} MiB, and {available >> 20} MiB are free here; "
            "give the cluster more with `emu up --memory`, or --set another protocol"
        )


def _fork(
    program: Program,
    index: int,
    namespace: int,
    sockets: dict[int, socket.socket],
    signs: memoryview,
    start: int,
    cpu_speed: float,
) -> Child:
    parent = os.getpid()
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        _be_node(program, index, namespace, sockets, signs, start, write, parent, cpu_speed)
    os.close(write)
    return Child(program.team.nodes[index], pid, read)


def _be_node(
    program: Program,
    index: int,
    namespace: int,
    sockets: dict[int, socket.socket],
    signs: memoryview,
    start: int,
    report: int,
    parent: int,
    cpu_speed: float,
) -> NoReturn:
    """The life of a node's process. Nothing of the coordinator's may run in it, so it ends here."""
    try:
        # The coordinator ends its children itself, at Ctrl-C too.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        set_parent_death_signal(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        gc.disable()
        set_timer_slack(1)
        setns(namespace, CLONE_NEWNET)
        waited = _open_wait_counter()
        used, endpoint = under_protocol(program, index, sockets)
        node = Node(program, index, used, signs, endpoint.poll if endpoint else select.poll)
        node.warm_up()
        if cpu_speed:
            set_cpu_speed(cpu_speed)
        os.write(report, READY)
        node.run(int.from_bytes(_hear(start, endpoint), "little"))
        os.write(report, ENDED)
        _hear(start, endpoint)
        record = msgspec.structs.replace(node.record(), waited_ns=_waited_ns(waited))
        _write(report, DONE + msgspec.msgpack.encode(record))
    except WorkloadError as error:
        _write(report, FAILED + str(error).encode())
    except BaseException as error:
        trace = error.__traceback__
        while trace and trace.tb_next:
            trace = trace.tb_next
        where = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})" if trace else ""
        _write(report, FAILED + f"{type(error).__name__}: {error}{where}".encode())
    finally:
        os._exit(0)


def _hear(start: int, endpoint: Endpoint | None) -> bytes:
    """What the coordinator says next. Meanwhile others may miss what this node has sent over a user-space path."""
    if endpoint:
        endpoint.serve_beside(start)
    return os.read(start, 8)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _wait(
    program: Program,
    children: list[Child],
    signs: memoryview,
    progress: ProgressCallback | None,
    enough: Callable[[Child], bool],
) -> None:
    """Listens to all children until each is `enough`. Raises WorkloadError at the first failure or stall."""
    poll = select.poll()
    by_pipe = {child.pipe: child for child in children if not child.ended}
    for pipe in by_pipe:
        poll.register(pipe, select.POLLIN)
    seen, moved = list(signs), monotonic_ns()
    while not all(enough(child) for child in children):
        for pipe, _ in poll.poll(LOOK_MS):
            child = by_pipe[pipe]
            data = os.read(pipe, 1 << 20)
            child.data += data
            if not data:
                child.ended = True
                poll.unregister(pipe)
            if reason := child.failure():
                raise WorkloadError(f"node {child.name}: {reason}")
        if list(signs) != seen:
            seen, moved = list(signs), monotonic_ns()
        elif monotonic_ns() - moved > program.stall_ns:
            raise WorkloadError(_stalled(program, signs))
        if progress:
            progress("workload", sum(child.ended for child in children) / len(children))


def _stalled(program: Program, signs: memoryview) -> str:
    names = program.team.nodes
    waits = [
        f"{names[node]} waits for {names[peer - 1]} after {signs[2 * node]} messages"
        for node in range(len(names))
        if (peer := signs[2 * node + 1])
    ]
    return f"nothing has moved for {program.stall_ns / 1e9:.0f} s: {', '.join(waits) or 'no node waits for another'}"


def _end(children: list[Child]) -> None:
    for child in children:
        os.close(child.pipe)
        if child.pid:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)


def _fork_changes(plan: Plan, events: Sequence[TimedPlan], start_ns: int) -> int:
    """A process that changes the cables at their times, beside the nodes. Returns its pid."""
    from emulator.fabric.change import change

    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        set_parent_death_signal(signal.SIGKILL)
        before = plan
        for event in events if os.getppid() == parent else ():
            sleep_until(start_ns + event.at_ns)
            change(before, event.plan)
            before = event.plan
        os._exit(0)
    finally:
        os._exit(1)


def _end_changes(plan: Plan, events: Sequence[TimedPlan], pid: int) -> None:
    """End that process and bring all back to the plan. Raises WorkloadError where a change had failed."""
    from emulator.fabric.change import change

    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    # What connections say as they close is on its way: who reads the counters next finds all of it carried.
    sleep_until(monotonic_ns() + ALIGNMENT_NS)
    # It may have been ended in the middle of a change.
    change(events[-1].plan, plan, everything=True)
    if status > 0:
        raise WorkloadError("an event of the scenario could not be carried out in the kernel; run it again")


def _open_wait_counter() -> int | None:
    """Before the start: system calls that fail, as this one may, take virtual time, and that of all nodes."""
    try:
        return os.open("/proc/self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _waited_ns(counter: int | None) -> int:
    """How long this process has waited for a processor; 0 where the kernel does not count that."""
    # "run time, wait time, time slices", times in ns (Documentation/scheduler/sched-stats.rst).
    return int(os.pread(counter, 100, 0).split()[1]) if counter is not None else 0
