"""What `test_fabric.py` has done inside a guest, where root, namespaces and netem are: one function for each check.

python -m tests.guest.fabric_inside NAME
"""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from emulator import linux
from emulator.errors import ClusterError, EmuError, FabricError, StateError
from emulator.fabric import apply as apply_module
from emulator.fabric import support
from emulator.fabric.apply import apply
from emulator.fabric.enter import enter, enter_network
from emulator.fabric.inspect import inspect
from emulator.fabric.journal import Journal, MountEntry, PathEntry, ProcessEntry, read, start_time
from emulator.fabric.namespace import DIRECTORY, namespace_path
from emulator.fabric.netlink import Netlink
from emulator.fabric.teardown import Report, teardown
from emulator.plan.model import Plan, Shaping, decode
from tests.plans import SHAPING, mesh, star

JOURNAL = Path("/run/test-journal")


@contextlib.contextmanager
def standing(plan: Plan) -> Iterator[Plan]:
    """The plan made true, and nothing left of it afterwards."""
    with Journal(JOURNAL) as journal:
        apply(plan, journal)
    yield plan
    report = teardown(JOURNAL)
    assert not report.left, report
    assert report.namespaces == len(plan.nodes), report
    nothing_left()


def nothing_left(expected: tuple[str, ...] = ()) -> None:
    assert sorted(path.name for path in DIRECTORY.iterdir()) == sorted(expected)
    mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    assert {point for point in mounted if point.startswith(f"{DIRECTORY}/")} == {f"{DIRECTORY}/{n}" for n in expected}
    assert not JOURNAL.exists()


@contextlib.contextmanager
def in_node(plan: Plan, name: str) -> Iterator[None]:
    with linux.network_namespace_kept():
        enter_network(plan.node(name).namespace)
        yield


def child(work: Callable[[], None]) -> int:
    """Do the work in a child, and return its pid at once."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            print(f"child: {error!r}", flush=True)
            os._exit(1)
        os._exit(0)
    return pid


@contextlib.contextmanager
def refused(kind: type[EmuError], *words: str) -> Iterator[None]:
    """What is done within raises this error, and its message holds these words."""
    try:
        yield
    except kind as error:
        said = str(error)
    else:
        raise AssertionError(f"no {kind.__name__}")
    assert all(word in said for word in words), said


def wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# --- what the kernel holds ---------------------------------------------------------------------------------------


def held_values() -> None:
    """Each value of a Shaping reaches the kernel and is read back, those that 32 bits do not hold included."""
    shaping = Shaping(
        delay_ns=300_000_001,
        rate_bps=800_000_000_000,
        limit_packets=1_000_000,
        seed=2**63 - 2,
        jitter_ns=1_000_003,
        distribution="paretonormal",
        correlation=0.25,
        loss=0.001,
        loss_correlation=0.5,
        duplicate=0.002,
        reorder=0.003,
    )
    for kind in ("uniform", "normal", "pareto", "paretonormal"):
        asked = msgspec.structs.replace(shaping, distribution=kind)
        with standing(mesh(2, shaping=asked)) as plan:
            (cable,) = inspect(plan)
            for direction, seed in ((cable.a_to_b, shaping.seed), (cable.b_to_a, shaping.seed + 1)):
                held = direction.held
                assert (held.delay_ns, held.jitter_ns) == (300_000_001, 1_000_003)
                assert (held.rate_bps, held.limit_packets, held.seed) == (800_000_000_000, 1_000_000, seed)
                for field in ("correlation", "loss", "loss_correlation", "duplicate", "reorder"):
                    assert abs(getattr(held, field) - getattr(shaping, field)) < 2.4e-10, field


def kernel_changes_are_seen() -> None:
    """What holds another value than the plan's is told by cable, direction, held and asked value."""
    with standing(mesh(2)) as plan:
        node, cable = plan.nodes[0], plan.cables[0]
        with in_node(plan, "n0"):
            netlink = Netlink()
        for command, said in (
            (
                "tc -n {ns} qdisc change dev {dev} root netem delay 41us rate 80gbit limit 100000",
                "delay_ns 40960 where 40001",
            ),
            ("ip -n {ns} link set {dev} mtu 1400", "MTU 1400 where 9000"),
            ("ip -n {ns} link set {dev} address 02:00:00:00:00:ff", "MAC 02:00:00:00:00:ff where"),
            ("tc -n {ns} qdisc del dev {dev} root", "noqueue where netem"),
        ):
            subprocess.run(command.format(ns=node.namespace, dev=cable.a.interface).split(), check=True)
            with refused(FabricError, said, f"cable {cable.name}, from n0"):
                apply_module._verify(node, {cable.a.interface: cable}, netlink)
        netlink.close()


def refusals_name_what_for() -> None:
    """A request that the kernel refuses names the thing it was for; what was made until then can be taken down."""
    plan = mesh(2)
    wrong = {
        "MTU 70000": mesh(2, mtu=70_000),
        "sysctl net.ipv4.no_such": _with_sysctl(plan, "net.ipv4.no_such", "1"),
        "net.ipv4.ip_forward = x": _with_sysctl(plan, "net.ipv4.ip_forward", "x"),
        "tcp_rmem holds": _with_sysctl(plan, "net.ipv4.tcp_rmem", "4096 131072"),
    }
    for said, bad in wrong.items():
        with Journal(JOURNAL) as journal, refused(FabricError, said):
            apply(bad, journal)
        assert not teardown(JOURNAL).left
        nothing_left()


def _with_sysctl(plan: Plan, name: str, value: str) -> Plan:
    nodes = tuple(msgspec.structs.replace(node, sysctls={name: value}) for node in plan.nodes)
    return msgspec.structs.replace(plan, nodes=nodes)


def support_is_found() -> None:
    assert support.netem_support() == "builtin"
    assert support.namespace_support() == support.veth_support() == "yes"
    assert support._listed("sch_netem", "CONFIG_NET_SCH_NETEM") == "builtin"  # from /proc/config.gz


def many_nodes() -> None:
    """65 namespaces and as many sockets within 1024 open files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    with standing(star(64)):
        pass
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 1024))
    with refused(FabricError, "ulimit -n"):
        apply(star(64), Journal(JOURNAL))
    JOURNAL.unlink()
    nothing_left()


# --- what cables do, on the virtual clock -------------------------------------------------------------------------


def _echo(plan: Plan, here: str, there: str, count: int, size: int) -> list[int]:
    """Round trips of UDP datagrams between own addresses, in ns of the monotonic clock."""
    with in_node(plan, there):
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind((plan.node(there).address, 5000))

    def answer() -> None:
        for _ in range(count):
            data, peer = server.recvfrom(65536)
            server.sendto(data, peer)

    pid = child(answer)
    with in_node(plan, here):
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.connect((plan.node(there).address, 5000))
        client.settimeout(5)
        took = []
        for _ in range(count):
            start = time.monotonic_ns()
            client.send(bytes(size))
            client.recv(65536)
            took.append(time.monotonic_ns() - start)
    assert wait(pid) == 0
    client.close()
    server.close()
    return took


def delay_and_rate_are_exact() -> None:
    """Each direction its own; the first message as fast as the hundredth; a packet costs its bytes at the rate."""
    headers = 14 + 20 + 8
    for size in (22, 958):
        with standing(mesh(3)) as plan:
            asymmetric = tuple(
                msgspec.structs.replace(
                    cable,
                    b=msgspec.structs.replace(
                        cable.b,
                        egress=msgspec.structs.replace(SHAPING, delay_ns=10_000, rate_bps=8_000_000_000),
                    ),
                )
                for cable in plan.cables
            )
        with standing(msgspec.structs.replace(plan, cables=asymmetric)) as plan:
            took = _echo(plan, "n0", "n1", 100, size)
            frame = size + headers
            asked = 40_001 + frame * 10**9 // 10_000_000_000 + 10_000 + frame * 10**9 // 1_000_000_000
            assert max(took) - min(took) <= 20, took
            assert abs(took[0] - asked) <= 40, (took[0], asked)
            traffic = {cable.name: cable for cable in inspect(plan)}["m:n0-n1"]
            assert traffic.a_to_b.traffic.packets == traffic.b_to_a.traffic.packets == 100
            assert traffic.a_to_b.traffic.bytes == 100 * frame
            assert traffic.a_to_b.traffic.drops == traffic.a_to_b.traffic.queued_packets == 0


def switch_forwards_without_flooding() -> None:
    """Two cables on the way, from the first frame on; the third node sees nothing."""
    with standing(star(3)) as plan:
        took = _echo(plan, "n0", "n1", 10, 22)
        asked = 4 * (40_001 + 64 * 10**9 // 10_000_000_000)
        assert max(took) - min(took) <= 20, took
        assert abs(took[0] - asked) <= 80, (took[0], asked)
        by_name = {cable.name: cable for cable in inspect(plan)}
        assert by_name["m:n1-sw"].b_to_a.traffic.packets == 10
        assert by_name["m:n2-sw"].b_to_a.traffic.packets == 0


def all_reach_all(encoded: str) -> None:
    """On any ideal plan: each node reaches each other's own address, and after the delay that the plan says."""
    plan = decode(encoded.encode())
    with standing(plan):
        sockets = {}
        for node in plan.computing:
            with in_node(plan, node.name):
                sockets[node.name] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                sockets[node.name].bind((node.address, 5000))
                sockets[node.name].settimeout(5)
        delay = {(node.name, route.node): route.delay_ns for node in plan.computing for route in node.routes}
        assert len(delay) == len(sockets) * (len(sockets) - 1)
        for (here, there), expected in delay.items():
            start = time.monotonic_ns()
            sockets[here].sendto(b"", (plan.node(there).address, 5000))
            _, (address, _) = sockets[there].recvfrom(1)
            took = time.monotonic_ns() - start
            assert address == plan.node(here).address
            assert expected <= took <= expected + 1000, (here, there, took, expected)
        for each in sockets.values():
            each.close()


def packets_are_of_the_mtu() -> None:
    """TCP hands a cable packets of its MTU, not 64 kB at once."""
    with standing(mesh(2, mtu=9000)) as plan:
        with in_node(plan, "n1"):
            server = socket.create_server((plan.node("n1").address, 5000))
            tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
            tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)

        def receive() -> None:
            connection, _ = server.accept()
            while connection.recv(1 << 20):
                pass

        pid = child(receive)
        with in_node(plan, "n0"):
            client = socket.create_connection((plan.node("n1").address, 5000))
        client.sendall(bytes(1_000_000))
        client.close()
        assert wait(pid) == 0
        server.close()
        lengths = []
        with contextlib.suppress(BlockingIOError):
            while True:
                lengths.append(tap.recv_into(bytearray(1), 1, socket.MSG_DONTWAIT | socket.MSG_TRUNC))
        tap.close()
        assert max(lengths) == 9000 + 14, max(lengths)
        assert inspect(plan)[0].a_to_b.traffic.drops == 0


def jitter_keeps_order_and_repeats() -> None:
    """Jitter of the size of the delay: no packet overtakes another, and the same seed draws the same delays."""
    shaping = msgspec.structs.replace(SHAPING, delay_ns=50_000, jitter_ns=40_000, distribution="normal")
    runs = []
    for _ in range(2):
        with standing(mesh(2, shaping=shaping)) as plan:
            with in_node(plan, "n1"):
                receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                receiver.bind((plan.node("n1").address, 5000))
                receiver.settimeout(1)
            with in_node(plan, "n0"):
                sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                sender.connect((plan.node("n1").address, 5000))
            start = time.monotonic_ns()
            for number in range(200):
                sender.send(number.to_bytes(8, "big"))
            arrivals = []
            for _ in range(200):
                number = int.from_bytes(receiver.recv(8), "big")
                arrivals.append((number, time.monotonic_ns() - start))
            sender.close()
            receiver.close()
        assert [number for number, _ in arrivals] == list(range(200))
        took = _round_trips_vary(shaping)
        runs.append(took)
    assert runs[0] == runs[1]


def _round_trips_vary(shaping: Shaping) -> list[int]:
    with standing(mesh(2, shaping=shaping)) as plan:
        took = _echo(plan, "n0", "n1", 200, 22)
    assert len(set(took)) > 150
    mean = sum(took) / len(took)
    assert abs(mean - 100_000) < 15_000, mean  # standard error of 200 sums of two: 4 us; below 0 is cut: +3 us
    return took


# --- journal and teardown -----------------------------------------------------------------------------------------


def killed_at_every_step() -> None:
    """kill -9 before and after every line of the journal: down leaves nothing, and up works again."""
    plan = star(2)
    steps = 0
    while True:

        def up(step: int = steps) -> None:
            os.environ["EMU_TEST_KILL_AT_STEP"] = str(step)
            with Journal(JOURNAL) as journal:
                apply(plan, journal)

        code = wait(child(up))
        report = teardown(JOURNAL)
        assert not report.left, (steps, report)
        nothing_left()
        assert teardown(JOURNAL) == Report()
        if code == 0:
            break
        assert code == -signal.SIGKILL, (steps, code)
        steps += 1
    assert steps == 2 * (2 * 3 + 2), steps  # two lines a namespace, one for each node's cables; before and after each
    with standing(plan):
        pass


def others_are_untouched() -> None:
    """Namespaces, interfaces and processes of others, named alike, stay; one of the very name is refused."""
    plan = mesh(2)
    subprocess.run(["ip", "netns", "add", "emu-test-n2"], check=True)
    subprocess.run(["ip", "link", "add", "m-n1", "type", "veth", "peer", "name", "m-n0"], check=True)
    stranger = subprocess.Popen(["ip", "netns", "exec", "emu-test-n2", "sleep", "1000"])
    with Journal(JOURNAL) as journal:
        apply(plan, journal)
    other = mesh(2, cluster="other")
    second = Path("/run/second-journal")
    with Journal(second) as journal:
        apply(other, journal)
    for taken in (plan, mesh(3)):
        third = Path("/run/third-journal")
        with Journal(third) as journal, refused(ClusterError, "stands already"):
            apply(taken, journal)
        assert teardown(third) == Report()
    assert teardown(JOURNAL).namespaces == 2
    assert len(inspect(other)) == 1
    assert teardown(second).namespaces == 2
    nothing_left(expected=("emu-test-n2",))
    assert stranger.poll() is None
    assert Path("/sys/class/net/m-n1").exists()
    stranger.kill()
    stranger.wait()
    subprocess.run(["ip", "link", "del", "m-n1"], check=True)
    subprocess.run(["ip", "netns", "del", "emu-test-n2"], check=True)


def replaced_namespace_is_untouched() -> None:
    """One of our name but another's by now: neither it nor its processes are touched."""
    plan = mesh(2)
    with Journal(JOURNAL) as journal:
        apply(plan, journal)
    name = plan.nodes[0].namespace
    subprocess.run(["ip", "netns", "del", name], check=True)
    subprocess.run(["ip", "netns", "add", name], check=True)
    stranger = subprocess.Popen(["ip", "netns", "exec", name, "sleep", "1000"])
    with refused(ClusterError, "has gone"):
        inspect(plan)
    assert teardown(JOURNAL).namespaces == 1
    nothing_left(expected=(name,))
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()
    subprocess.run(["ip", "netns", "del", name], check=True)


def processes_are_ended() -> None:
    """Those in a node, willing or not, and those in the journal; one whose pid was reused is not ours."""
    plan = mesh(2)
    with Journal(JOURNAL) as journal:
        apply(plan, journal)
        with in_node(plan, "n1"):
            willing = subprocess.Popen(["sleep", "1000"])
            stubborn = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 1000 & wait; sleep 1000"])
        recorded = subprocess.Popen(["sleep", "1000"])
        reused = subprocess.Popen(["sleep", "1000"])
        born = start_time(recorded.pid)
        assert born is not None
        journal.write([ProcessEntry(purpose="recorded", pid=recorded.pid, start_time=born)])
        journal.write([ProcessEntry(purpose="reused", pid=reused.pid, start_time=born - 1000)])
        time.sleep(0.1)
        report = teardown(JOURNAL, grace_s=0.2)
    assert report.processes == 4, report  # the shell's sleep, too
    assert willing.wait() == -signal.SIGTERM
    assert stubborn.wait() == -signal.SIGKILL
    assert recorded.wait() == -signal.SIGTERM
    assert reused.poll() is None
    reused.kill()
    reused.wait()
    nothing_left()


def paths_and_mounts_are_removed() -> None:
    """Each in the reverse order of its making; what stands in the place of a file of ours stays."""
    base = Path("/run/test-paths")
    with Journal(JOURNAL) as journal:
        for path in (base, base / "mount"):
            journal.write([PathEntry(path=str(path))])
            path.mkdir()
        journal.write([MountEntry(path=str(base / "mount"))])
        linux.mount("tmpfs", str(base / "mount"), "tmpfs")
        (base / "mount" / "file").touch()
        (base / "file").write_text("x")
        found = (base / "file").stat()
        journal.write([PathEntry(path=str(base / "file"), device=found.st_dev, inode=found.st_ino)])
        kept = Path("/run/kept")
        kept.touch()
        journal.write([PathEntry(path=str(kept), device=found.st_dev, inode=found.st_ino)])
    report = teardown(JOURNAL)
    assert (report.paths, report.mounts, report.left) == (3, 1, []), report
    assert not base.exists()
    assert kept.exists()


def full_disk() -> None:
    """No room for the journal: StateError before the step, and what was made before it is taken down."""
    small = Path("/run/small")
    small.mkdir()
    for pages, namespaces in ((0, 0), (1, 12)):  # nothing fits; the namespaces fit, the cables do not
        linux.mount("tmpfs", str(small), "tmpfs", 0, f"size={4096 * (pages + 1)}")
        (small / "room").write_bytes(bytes(4096))
        path = small / "journal"
        with Journal(path) as journal, refused(StateError, "No space left"):
            apply(mesh(12), journal)
        assert len(list(DIRECTORY.iterdir())) == namespaces
        report = teardown(path)
        assert (report.namespaces, report.left) == (namespaces, []), report
        nothing_left()
        linux.umount2(str(small))


# --- entering -----------------------------------------------------------------------------------------------------


def entering() -> None:
    """A process in a node sees the node's interfaces, name and hosts; its mounts keep no namespace."""
    hosts = Path("/run/hosts")
    hosts.write_text("10.0.0.1 n1\n")
    with standing(mesh(2)) as plan:

        def look() -> None:
            enter("n0", plan.node("n0").namespace, hosts)
            assert {path.name for path in Path("/sys/class/net").iterdir()} >= {"lo", "m-n1"}
            assert os.uname().nodename == "n0"
            assert Path("/etc/hosts").read_text() == "10.0.0.1 n1\n"
            assert socket.gethostbyname("n1") == "10.0.0.1"

        assert wait(child(look)) == 0
        assert not Path("/sys/class/net/m-n1").exists()
        assert os.uname().nodename != "n0"

        def stay() -> None:
            enter("n0", plan.node("n0").namespace, None, hostname=False)
            enter_network(plan.node("n1").namespace)
            time.sleep(1000)

        stays = child(stay)
        time.sleep(0.2)
    assert wait(stays) == -signal.SIGTERM
    with refused(ClusterError, "has gone"):
        enter_network(plan.node("n0").namespace)


CHECKS = {
    check.__name__: check
    for check in (
        held_values,
        kernel_changes_are_seen,
        refusals_name_what_for,
        support_is_found,
        many_nodes,
        delay_and_rate_are_exact,
        switch_forwards_without_flooding,
        packets_are_of_the_mtu,
        jitter_keeps_order_and_repeats,
        killed_at_every_step,
        others_are_untouched,
        replaced_namespace_is_untouched,
        processes_are_ended,
        paths_and_mounts_are_removed,
        full_disk,
        entering,
    )
}


def run(name: str) -> None:
    """Run one check, and see that nothing of it is left."""
    CHECKS[name]()
    assert read(JOURNAL) == []
    assert not namespace_path("emu-test-n0").exists()
