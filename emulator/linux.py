"""System calls that Python 3.11 does not offer, through the C library. Each raises OSError with what was asked for."""

import contextlib
import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MS_SLAVE = 0x80000
MS_SHARED = 0x100000
MNT_DETACH = 0x2

_CLOCK_MONOTONIC = 1
_TIMER_ABSTIME = 1
_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
_SYS_ARCH_PRCTL = 158
"""x86-64, the one machine that user-mode Linux has a port for."""
_ARCH_SET_CPU_CHARGE = 0x454D5501
"""Of the guest kernel's cpu-scale patch."""

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Give the calling thread namespaces of its own. (os.unshare came with Python 3.12.)"""
    _check(_libc.unshare(ctypes.c_int(flags)), f"unshare({flags:#x})")


def setns(descriptor: int, kind: int) -> None:
    """Move the calling thread into the namespace that `descriptor` is open on. (os.setns came with Python 3.12.)"""
    _check(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(kind)), f"setns({descriptor}, {kind:#x})")


def mount(source: str, target: str, kind: str = "none", flags: int = 0, options: str = "") -> None:
    """Mount, bind or change the propagation of a mount; a process of mount(8) for each would cost milliseconds."""
    result = _libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), os.fsencode(options) or None
    )
    _check(result, f"mount({source!r}, {target!r}, {kind!r}, {flags:#x})")


def umount2(target: str, flags: int = 0) -> None:
    """Unmount; MNT_DETACH takes the mount out of the tree at once, even where something holds a file on it."""
    _check(_libc.umount2(os.fsencode(target), ctypes.c_int(flags)), f"umount2({target!r}, {flags:#x})")


def sethostname(name: str) -> None:
    """Name the machine, of the calling process's UTS namespace. (Importing socket takes 5 ms in the guest.)"""
    data = name.encode()
    _check(_libc.sethostname(data, ctypes.c_size_t(len(data))), f"sethostname({name!r})")


def set_timer_slack(nanoseconds: int) -> None:
    """Wake from sleeps this exactly; the kernel's default lets each be 50 us late."""
    _check(_libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(nanoseconds), 0, 0, 0), f"prctl(TIMERSLACK, {nanoseconds})")


def set_parent_death_signal(number: int) -> None:
    """Have the kernel send this signal to the calling process when its parent thread ends, however that ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0), f"prctl(PDEATHSIG, {number})")


def set_cpu_speed(speed: float) -> None:
    """Have the caller and its children compute at `speed` times this host's speed; 0: computing is free.

    The kernel takes the inverse: thousandths of the host's CPU time to charge. Guest kernel on the virtual clock only:
    any other kernel does not know the request (OSError, EINVAL), and the guest on the real clock ignores it.
    """
    charge = round(1000 / speed) if speed else 0
    result = _libc.syscall(ctypes.c_long(_SYS_ARCH_PRCTL), ctypes.c_ulong(_ARCH_SET_CPU_CHARGE), ctypes.c_ulong(charge))
    _check(result, f"arch_prctl(CPU_CHARGE, {charge})")


@contextlib.contextmanager
def network_namespace_kept() -> Iterator[None]:
    """Put the calling thread back into its network namespace at the end, however that comes."""
    path = "/proc/thread-self/ns/net"
    home = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        try:
            # Without root, even the move to where one is already is refused.
            if not os.path.samestat(Path(path).stat(), os.fstat(home)):
                setns(home, CLONE_NEWNET)
        finally:
            os.close(home)


def mlock(memory: mmap.mmap, size: int) -> None:
    """Keep the first `size` bytes of `memory` in real memory, as registering them with an adapter does."""
    _check(_libc.mlock(_address(memory), ctypes.c_size_t(size)), f"mlock({size})")


def munlock(memory: mmap.mmap, size: int) -> None:
    """Undo `mlock`."""
    _check(_libc.munlock(_address(memory), ctypes.c_size_t(size)), f"munlock({size})")


def _address(memory: mmap.mmap) -> ctypes.c_void_p:
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def sleep_until(monotonic_ns: int) -> None:
    """Sleep until CLOCK_MONOTONIC shows this. (time.sleep takes a duration and reads the clock, which takes time.)"""
    until = _Timespec(*divmod(monotonic_ns, 1_000_000_000))
    while error := _libc.clock_nanosleep(_CLOCK_MONOTONIC, _TIMER_ABSTIME, ctypes.byref(until), None):
        if error != errno.EINTR:
            raise OSError(error, f"clock_nanosleep({monotonic_ns}): {os.strerror(error)}")
