"""The guest kernel: built from a source tree and what lies in `kernel/`, and kept in a cache.

CACHE/kernel-HASH/linux        the kernel
CACHE/kernel-HASH/info.json    `KernelInfo`
CACHE/kernel-HASH/config       its whole configuration
CACHE/build.log                what the last build printed
CACHE/failed.log               what the last build printed that failed
CACHE/lock, CACHE/build/       held, and used, by the one build at work
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from emulator import linux
from emulator.errors import GuestError, PlaceError, StateError

Progress = Callable[[str, float], None]
"""Called with what is being done and the share that is done, 0 to 1."""

KERNEL = Path(__file__).parent / "kernel"
SERIES = "6.12"
"""The series of Linux that the patches are made for, and that Debian 12's backports carry as a package."""
TOOLS = {
    "bc": "bc",
    "bison": "bison",
    "flex": "flex",
    "gcc": "gcc libc6-dev",
    "make": "make",
    "patch": "patch",
    "xz": "xz-utils",
}
"""Programs the build needs, and Debian's packages of them."""
MAKE = ("make", "ARCH=um")
ENVIRONMENT = {"LC_ALL": "C", "KBUILD_BUILD_USER": "emu", "KBUILD_BUILD_HOST": "emu", "KBUILD_BUILD_TIMESTAMP": "0"}
"""Equal sources give equal kernels."""
OBJECTS = 1050
"""Files that make names on its way; only the progress bar depends on it."""
FAILED_LOG = "failed.log"
OBJECT = re.compile(r"  (CC|AS|LDS|HOSTCC|AR|LD) ")
SPACE_BYTES = 1_500_000_000
"""What sources and objects take while the kernel is built."""
UNUSED = (
    *("Documentation", "samples", "sound", "tools/testing", "tools/perf"),
    *("drivers/gpu", "drivers/media", "drivers/scsi", "drivers/staging", "drivers/infiniband", "drivers/usb"),
    *("drivers/net/ethernet", "drivers/net/wireless", "drivers/iio", "drivers/clk", "drivers/pinctrl", "drivers/soc"),
    *("arch/arm", "arch/arm64", "arch/mips", "arch/powerpc", "arch/riscv", "arch/s390", "arch/sparc", "arch/sh"),
)
"""Parts of the source whose C files are left packed; their Kconfig files and Makefiles are read."""


class KernelInfo(msgspec.Struct, kw_only=True):
    """What is known of a built guest kernel."""

    path: str
    hash: str
    version: str
    """Of Linux, as the source's Makefile has it."""
    size: int
    """Bytes."""
    built: float
    """Seconds since 1970."""
    seconds: float
    """Wall time of the build."""
    source: str
    options: list[str]
    """Options that were asked for, all set."""


def kernel_hash() -> str:
    """Names the kernel that the configuration, the patches and this recipe give."""
    parts = [SERIES, *MAKE, *(f"{key}={value}" for key, value in ENVIRONMENT.items()), (KERNEL / "config").read_text()]
    parts += [text for path in _patches() for text in (path.name, path.read_text())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def cache_dir() -> Path:
    """Where kernels are kept: EMU_CACHE_DIR, else /var/cache/emu for root, ~/.cache/emu for a user."""
    if given := os.environ.get("EMU_CACHE_DIR"):
        return Path(given).absolute()
    if os.geteuid() == 0:
        return Path("/var/cache/emu")
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home) / "emu" if home else Path.home() / ".cache" / "emu"


def find_kernel() -> Path | None:
    """The built guest kernel of this version of emu; a user may use the one that root has built. None: not built."""
    places = [cache_dir()]
    if "EMU_CACHE_DIR" not in os.environ:
        places.append(Path("/var/cache/emu"))
    found = (place / f"kernel-{kernel_hash()}" / "linux" for place in places)
    return next((path for path in found if _whole(path)), None)


def _whole(kernel: Path) -> bool:
    """Whether this is the file that was built: a damaged one is built again."""
    try:
        return os.access(kernel, os.X_OK) and kernel.stat().st_size == _known(kernel).size
    except (OSError, msgspec.MsgspecError):
        return False


def _known(kernel: Path) -> KernelInfo:
    return msgspec.json.decode((kernel.parent / "info.json").read_bytes(), type=KernelInfo)


def info() -> KernelInfo | None:
    """What is known of the kernel that `find_kernel` finds."""
    kernel = find_kernel()
    if kernel is None:
        return None
    known = _known(kernel)
    return msgspec.structs.replace(known, path=str(kernel))


def build(source: Path | None, progress: Progress) -> Path:
    """Build the guest kernel into the cache and return its path; waits for another build at work, and takes its result.

    `source` is a directory or a tarball, which is built even where a kernel is there; None: that of Debian's package.
    Raises PlaceError where this host cannot build it, GuestError where the source does not give the kernel that is
    needed, StateError where the cache is full.
    """
    _check_host()
    wanted = source is not None
    source = _find_source(source)
    cache = cache_dir()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache / "lock", progress):
            if not wanted and (kernel := find_kernel()):
                return kernel
            if shutil.disk_usage(cache).free < SPACE_BYTES:
                raise StateError(
                    f"building the guest kernel takes {SPACE_BYTES / 1e9:.1f} GB in {cache}, which has less; "
                    "free some space, or set EMU_CACHE_DIR to another directory"
                )
            aside = cache / "build"
            shutil.rmtree(aside, ignore_errors=True)
            try:
                return _build(source, aside, cache, progress)
            except GuestError:
                (cache / "build.log").replace(cache / FAILED_LOG)
                raise
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise StateError(
            f"the guest kernel cannot be kept in {cache}: {error.strerror}; set EMU_CACHE_DIR to another directory"
        ) from error


def missing_options(config: str, wanted: str) -> list[str]:
    """The lines of `wanted` (`CONFIG_A=y`, `# CONFIG_B is not set`) that do not hold in a whole configuration."""
    have = set(config.splitlines())
    values = {line.partition("=")[0] for line in have if line.startswith("CONFIG_")}
    missing = []
    for line in wanted.splitlines():
        if off := re.fullmatch(r"# (CONFIG_\w+) is not set", line):
            holds = off[1] not in values
        elif line.startswith("CONFIG_"):
            holds = line in have
        else:
            continue
        if not holds:
            missing.append(line)
    return missing


def _patches() -> list[Path]:
    return sorted((KERNEL / "patches").glob("*.patch"))


def _check_host() -> None:
    if platform.machine() != "x86_64":
        raise PlaceError(
            f"the guest kernel (user-mode Linux) runs on x86-64 hosts only, and this is {platform.machine()}; "
            "use --kernel host as root"
        )
    if missing := [package for tool, package in TOOLS.items() if not shutil.which(tool)]:
        raise PlaceError(f"building the guest kernel needs more programs; run: apt-get install {' '.join(missing)}")


def _find_source(source: Path | None) -> Path:
    if source is None:
        found = sorted(Path("/usr/src").glob(f"linux-source-{SERIES}.tar.*"))
        if not found:
            raise PlaceError(
                f"no kernel source in /usr/src; run: apt-get install linux-source-{SERIES} (Debian 12: from "
                "bookworm-backports), or name one with --source"
            )
        return found[0]
    if source.is_dir():
        if not (source / "arch/um/Makefile").is_file():
            raise GuestError(f"{source} is not a kernel's source: it has no arch/um; give the directory that holds it")
    elif not source.is_file():
        raise GuestError(f"{source} does not exist; give a directory or a tarball of Linux {SERIES}")
    return source


@contextlib.contextmanager
def locked(path: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of a cache; who has to wait for it says so."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another build", 0.0)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(source: Path, aside: Path, cache: Path, progress: Progress) -> Path:
    began, name = time.time(), kernel_hash()
    tree, objects, result = aside / "source", aside / "objects", aside / "result"
    for directory in (tree, objects, result):
        directory.mkdir(parents=True)
    with (cache / "build.log").open("w") as log:
        run = _Runner(log, tree, progress)
        progress("unpacking the source", 0.0)
        if source.is_dir():
            run("cp", "-a", "--reflink=auto", f"{source.absolute()}/.", str(tree))
        else:
            compression = ("-I", "xz -T0") if source.suffix == ".xz" else ()
            unused = (f"--exclude=*/{part}/*.{kind}" for part in UNUSED for kind in ("c", "h", "S", "dts*", "rst"))
            run("tar", *compression, "-xf", str(source.absolute()), "--strip-components=1", *unused)
        if not (tree / "arch/um/Makefile").is_file():
            raise GuestError(f"{source} is not a kernel's source: it has no arch/um; give a tarball of Linux {SERIES}")
        for patch in _patches():
            run("patch", "-p1", "-s", "--no-backup-if-mismatch", "-i", str(patch))
        make = (*MAKE, f"O={objects}", f"-j{(os.cpu_count() or 1) + 1}")
        wanted = (KERNEL / "config").read_text()
        run(*make, "tinyconfig")
        with (objects / ".config").open("a") as config:
            config.write(wanted)
        run(*make, "olddefconfig")
        if missing := missing_options((objects / ".config").read_text(), wanted):
            raise GuestError(f"this source does not give the guest kernel what it needs: {', '.join(missing)}")
        run(*make, "linux", objects=OBJECTS)
        run("strip", "-o", str(result / "linux"), str(objects / "linux"))
        version = subprocess.run(
            [*MAKE, "-s", "kernelversion"], cwd=tree, check=True, capture_output=True, text=True
        ).stdout.strip()
    final = cache / f"kernel-{name}"
    known = KernelInfo(
        path=str(final / "linux"),
        hash=name,
        version=version,
        size=(result / "linux").stat().st_size,
        built=time.time(),
        seconds=time.time() - began,
        source=str(source),
        options=[line for line in wanted.splitlines() if line.startswith("CONFIG_")],
    )
    (result / "info.json").write_bytes(msgspec.json.encode(known))
    shutil.copy(objects / ".config", result / "config")
    shutil.rmtree(final, ignore_errors=True)
    result.rename(final)
    progress("done", 1.0)
    return final / "linux"


class _Runner:
    """Runs the programs of a build in the source tree; all they print goes to the log."""

    def __init__(self, log: IO[str], tree: Path, progress: Progress) -> None:
        self.log = log
        self.tree = tree
        self.progress = progress

    def __call__(self, *command: str, objects: int = 0) -> None:
        """Run one; where it will name about that many objects, show how far it is."""
        self.log.write(f"+ {' '.join(command)}\n")
        self.log.flush()
        full, done = False, 0
        with subprocess.Popen(
            command,
            cwd=self.tree,
            env={"PATH": os.environ.get("PATH", os.defpath), **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=lambda: linux.set_parent_death_signal(signal.SIGTERM),
        ) as process:
            assert process.stdout
            for line in process.stdout:
                self.log.write(line)
                full = full or os.strerror(errno.ENOSPC) in line
                if objects and OBJECT.match(line):
                    done += 1
                    self.progress("compiling the kernel", min(done / objects, 0.99))
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if process.returncode:
            log = Path(self.log.name).with_name(FAILED_LOG)
            raise GuestError(
                f"the guest kernel could not be built: {command[0]} failed (see {log}); "
                f"the source must be Linux {SERIES}, as in Debian's package linux-source-{SERIES}"
            )
