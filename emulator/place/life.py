"""The life of a cluster: up, attached to by later commands, down. The same wherever it stands."""

import contextlib
import os
import shutil
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from emulator import state
from emulator.errors import ClusterError, StateError, UsageError
from emulator.fabric.journal import Journal
from emulator.fabric.namespace import namespace_path
from emulator.fabric.teardown import Report, teardown
from emulator.guest.supervisor import bound_to
from emulator.place.choose import Choice
from emulator.place.cluster import Cluster, Progress
from emulator.plan.model import Plan
from emulator.state import Record


def up(
    plan: Plan,
    choice: Choice,
    *,
    file: str,
    memory: str,
    seed: int,
    ideal: bool,
    progress: Progress,
    pace: bool = False,
) -> Cluster:
    """Build a cluster and leave it standing. What it had made when it fails is taken down again.

    Raises ClusterError where one of that name stands, and whatever stops the building.
    """
    if choice.clock == "real" and any(node.cpu_speed for node in plan.nodes):
        raise UsageError("a cpu_speed charges computing to the virtual clock; leave it out, or give --clock virtual")
    name = plan.cluster
    directory = state.cluster_directory(name)
    with state.locked(name):
        if directory.exists():
            raise ClusterError(f"cluster {name!r} stands already; take it down with: emu down {name}, or give --name")
        record = Record(
            name=name,
            topology_file=file,
            place=choice.place,
            clock=choice.clock,
            plan=plan,
            created=time.time(),
            owner=os.geteuid(),
            seed=seed,
            ideal=ideal,
            pace=pace,
        )
        with _ending_raises():
            try:
                with state.translated(directory):
                    directory.mkdir(mode=0o700)
                state.write(record)
                with Journal(directory / "journal") as journal:
                    cluster = _make(record, journal, memory, progress)
                record.ready = True
                state.write(record)
            except BaseException:
                with contextlib.suppress(StateError):
                    _remove(name)
                raise
    return cluster


def attach(name: str) -> Cluster:
    """A standing cluster. Raises ClusterError where none of that name is up."""
    record = state.read(name)
    if not record.ready:
        raise ClusterError(f"cluster {name!r} was left half-made; remove it with: emu down {name}")
    if record.place == "host":
        from emulator.place.host import HostCluster

        return HostCluster(record)
    from emulator.place.guest import GuestCluster

    return GuestCluster.attach(record)


def alive(record: Record) -> bool:
    """Whether what the record says is really there: all its namespaces, or its guest."""
    if record.place == "host":
        return all(namespace_path(node.namespace).exists() for node in record.plan.nodes)
    return supervisor_of(state.cluster_directory(record.name)) is not None


def down(name: str) -> Report:
    """Take a cluster down, whatever state it is in. Raises ClusterError where there is none, or something stays."""
    directory = state.cluster_directory(name)
    with state.locked(name):
        if not directory.is_dir():
            state.read(name)
        report = _remove(name)
    if report.left:
        raise ClusterError(f"cluster {name!r} is not wholly down: {'; '.join(report.left)}; call emu down {name} again")
    return report


@contextlib.contextmanager
def temporary(
    plan: Plan, choice: Choice, *, file: str, memory: str, seed: int, ideal: bool, progress: Progress
) -> Iterator[Cluster]:
    """A cluster for one run, taken down whatever happens."""
    with _ending_raises():
        cluster = up(plan, choice, file=file, memory=memory, seed=seed, ideal=ideal, progress=progress)
        try:
            yield cluster
        finally:
            cluster.close()
            down(plan.cluster)


def _make(record: Record, journal: Journal, memory: str, progress: Progress) -> Cluster:
    if record.place == "host":
        from emulator.place.host import HostCluster

        cluster = HostCluster(record)
        cluster.make(journal, progress)
        return cluster
    from emulator.place.guest import GuestCluster

    return GuestCluster.make(record, journal, memory, progress)


def _remove(name: str) -> Report:
    """Take down what the journal says, then the cluster's directory."""
    directory = state.cluster_directory(name)
    end_supervisor(directory)
    report = teardown(directory / "journal")
    if not report.left:
        with state.translated(directory):
            shutil.rmtree(directory)
    return report


def supervisor_of(directory: Path) -> int | None:
    """The pid of the supervisor that listens on the socket there; None: no guest of this user's runs.

    It is found so even where the journal was lost, and never taken for a process that got its pid.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            bound_to(directory, connection.connect)
        except OSError:
            return None
        pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return int(pid) if user == os.geteuid() else None


def end_supervisor(directory: Path) -> None:
    """End the guest's supervisor."""
    if (pid := supervisor_of(directory)) is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def _ending_raises() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the building as Ctrl-C does, so that what was made is taken down."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
