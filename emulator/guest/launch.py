"""Bringing a guest up: the script its kernel starts, and the supervisor as a daemon."""

import compileall
import contextlib
import importlib.util
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

import emulator
from emulator.errors import EmuError, GuestError
from emulator.guest.agent import Start
from emulator.guest.client import Client
from emulator.guest.protocol import Failed, failure, rebuild
from emulator.guest.supervisor import log, supervise
from emulator.state import Clock, translated

SCRATCH = "scratch"
INIT = "init"
_INSIDE = ("msgspec", "pyroute2")
"""Packages that the code inside the guest imports."""
_FASTER = "sys.modules['typing_extensions'] = None; import msgspec; del sys.modules['typing_extensions']"
"""Where typing_extensions cannot be had, msgspec takes what it needs from the standard library: 60 ms less inside."""


def launch(
    directory: Path,
    *,
    kernel: Path,
    clock: Clock = "virtual",
    memory: str = "2G",
    pace: bool = False,
    started: Callable[[int], None] = lambda _pid: None,
) -> Client:
    """Boot a guest that belongs to the cluster in `directory`, and return when its agent answers.

    A supervisor of its own owns the guest from then on, and outlives the caller; `started` is called with its pid
    before it does anything, to be journaled. `memory` as the kernel's mem= takes it. Raises GuestError, with the end
    of the guest's console, where it does not come up; StateError where the directory cannot be written.
    """
    directory = directory.resolve()
    with translated(directory):
        scratch = directory / SCRATCH
        scratch.mkdir(mode=0o700, exist_ok=True)
        init = write_init(directory, scratch, virtual=clock == "virtual", pace=pace)
    precompile()
    go, go_end = os.pipe()
    answer, answer_end = os.pipe()
    pid = os.fork()
    if pid == 0:

        def up() -> None:
            os.write(answer_end, b"ok")
            os.close(answer_end)

        try:
            os.close(go_end)
            daemonise(keep={go, answer_end})
            if os.read(go, 1):
                os.close(go)
                supervise(
                    directory,
                    init,
                    kernel=kernel,
                    clock=clock,
                    memory=memory,
                    pace=pace,
                    up=up,
                )
        except BaseException as error:
            if not isinstance(error, EmuError):
                log.exception("the supervisor ends")
            why = failure(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            with contextlib.suppress(OSError):
                os.write(answer_end, msgspec.msgpack.encode(why))
        finally:
            os._exit(0)
    os.close(go)
    os.close(answer_end)
    try:
        try:
            started(pid)
            os.write(go_end, b"g")
        finally:
            os.close(go_end)
        said = b"".join(iter(lambda: os.read(answer, 65536), b""))
        if said != b"ok":
            os.waitpid(pid, 0)
            raise rebuild(msgspec.msgpack.decode(said, type=Failed)) if said else GuestError("the supervisor ended")
    except BaseException:
        end(pid)
        raise
    finally:
        os.close(answer)
    return Client(directory, supervisor=pid)


def end(pid: int) -> None:
    """End a supervisor that we started; the guest goes with it."""
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def daemonise(keep: set[int]) -> None:
    """Leave the caller's session, files and signals; keep only these descriptors.

    The others become /dev/null instead of being closed: objects of the caller still hold their numbers, and would write
    to, or close, whatever got those next.
    """
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in {0, 1, 2, *map(int, os.listdir("/proc/self/fd"))} - {nothing, *keep}:  # noqa: PTH208
        with contextlib.suppress(OSError):  # the one that was open on the list itself
            os.fstat(number)
            os.dup2(nothing, number, inheritable=False)
    os.chdir("/")
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_IGN if number in (signal.SIGPIPE, signal.SIGHUP) else signal.SIG_DFL)
        except (OSError, ValueError):
            continue


def write_init(directory: Path, scratch: Path, *, virtual: bool, pace: bool) -> Path:
    """The guest's first program: a script, since the kernel's command line holds no spaces."""
    python = Path(sys.executable).resolve()
    paths = import_paths()
    keep = [sys.prefix, sys.base_prefix, str(python.parent), os.path.dirname(os.__file__), *paths]  # noqa: PTH120
    start = Start(str(scratch), sorted({str(Path(path).resolve()) for path in keep}), time.time(), virtual, pace)
    code = f"import sys; sys.path[:0] = {paths!r}; {_FASTER}; from emulator.guest.agent import main; main(sys.argv[1])"
    words = [str(python), "-I", "-S", "-c", code, msgspec.json.encode(start).decode()]
    init = directory / INIT
    init.write_text(f"#!/bin/sh\nexec {shlex.join(words)}\n", encoding="utf-8")
    init.chmod(0o700)
    return init


def import_paths() -> list[str]:
    """Where emu and the packages it needs inside are found; without the interpreter's search for site packages."""
    places = [Path(emulator.__file__).resolve().parent.parent]
    for name in _INSIDE:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise GuestError(f"the Python package {name} is missing; install emu anew")
        places.append(Path(spec.origin).resolve().parent.parent)
    return list(dict.fromkeys(map(str, places)))


def precompile() -> None:
    """Compile our modules where that can be kept: inside the guest nothing can be written beside them."""
    root = Path(emulator.__file__).parent
    for path in root.rglob("*.py"):
        compileall.compile_file(path, quiet=2)
