"""What a message costs this host's kernel and processor, piece by piece: the figures of protocols/tcp-linux.yaml.

Each is the least of many trials, less what the loop itself takes. `python -m bench.host_costs` prints them.
"""

import ctypes
import mmap
import os
import platform
import socket
import zlib
from collections.abc import Callable
from time import perf_counter_ns

MESSAGE_BYTES = 14336
PAGE_BYTES = mmap.PAGESIZE
REGION_BYTES = 256_000_000
libc = ctypes.CDLL(None)


def least_ns(work: Callable[[], object], times: int = 1000, trials: int = 30) -> float:
    """The shortest time of `work`, in ns, averaged over `times` calls in a row."""
    found = []
    for _ in range(trials):
        start = perf_counter_ns()
        for _ in range(times):
            work()
        found.append((perf_counter_ns() - start) / times)
    return min(found)


def system_call_ns() -> float:
    return least_ns(os.getppid) - least_ns(int)


def copy_bytes_per_s() -> float:
    """Of a message between buffers too large for the caches."""
    size = 64 << 20
    source, target = memoryview(bytearray(os.urandom(1 << 20) * 64)), memoryview(bytearray(size))
    places = iter(range(0, 10**12, 4 * MESSAGE_BYTES))

    def copy() -> None:
        at = next(places) % (size - MESSAGE_BYTES)
        target[at : at + MESSAGE_BYTES] = source[at : at + MESSAGE_BYTES]

    return MESSAGE_BYTES * 1e9 / least_ns(copy)


def checksum_bytes_per_s() -> float:
    data = os.urandom(MESSAGE_BYTES)
    return MESSAGE_BYTES * 1e9 / least_ns(lambda: zlib.crc32(data))


def pin_ns(size: int, times: int) -> float:
    """mlock and munlock of memory that is there already: what registering it costs without the adapter's own part."""
    region = mmap.mmap(-1, size)
    for place in range(0, size, PAGE_BYTES):
        region[place] = 1
    address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(region)))
    length = ctypes.c_size_t(size)

    def pin() -> None:
        if libc.mlock(address, length) or libc.munlock(address, length):
            raise OSError("mlock is not allowed; raise ulimit -l")

    return least_ns(pin, times=times, trials=10)


def half_round_trip_ns(there: Callable[[], object], back: Callable[[], object]) -> float:
    """Half of what `there`, answered by a forked child that calls `back`, takes."""
    times = 2000
    pid = os.fork()
    if not pid:
        for _ in range(times * 10):
            back()
        os._exit(0)
    time = least_ns(there, times=times, trials=10)
    os.waitpid(pid, 0)
    return time / 2


def pipe_ns() -> float:
    """A write, a wake-up and a read."""
    (r1, w1), (r2, w2) = os.pipe(), os.pipe()
    return half_round_trip_ns(
        lambda: (os.write(w1, b"x"), os.read(r2, 1)), lambda: (os.read(r1, 1), os.write(w2, b"x"))
    )


def tcp_ns() -> float:
    """The same over a TCP connection on loopback: the stack's two ways, sender's and receiver's, are in it."""
    listener = socket.create_server(("127.0.0.1", 0))
    a = socket.create_connection(listener.getsockname())
    b, _ = listener.accept()
    for sock in (a, b):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return half_round_trip_ns(lambda: (a.send(b"x"), a.recv(1)), lambda: (b.recv(1), b.send(b"x")))


def main() -> None:
    call, pipe, tcp = system_call_ns(), pipe_ns(), tcp_ns()
    few, many = pin_ns(4 * PAGE_BYTES, 1000), pin_ns(REGION_BYTES // PAGE_BYTES * PAGE_BYTES, 1)
    page = (many - few) / (REGION_BYTES / PAGE_BYTES - 4)
    print(f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} processors")
    print(f"system call                        {call:10.0f} ns")
    print(f"wake-up (pipe less two calls)      {pipe - 2 * call:10.0f} ns")
    print(f"TCP stack, both ends (less pipe)   {tcp - pipe:10.0f} ns")
    print(f"copy                               {copy_bytes_per_s() / 1e9:10.2f} GB/s")
    print(f"checksum (zlib.crc32)              {checksum_bytes_per_s() / 1e9:10.2f} GB/s")
    print(f"pin and unpin 4 pages              {few:10.0f} ns")
    print(f"pin and unpin 256 MB               {many / 1e6:10.2f} ms, {page:.1f} ns a page")


if __name__ == "__main__":
    main()
