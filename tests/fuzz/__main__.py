"""Fuzzing for as long as one likes: python -m tests.fuzz SECONDS [TARGET]... Example: make fuzz SECONDS=60

Half of each target's time goes to changed files (mutate.py), half to atheris, which looks for inputs that reach code
not yet reached; where atheris is not installed, all goes to the first. Prints a line for each target; an input that is
neither read nor refused is kept in out/fuzz, and ends the run with status 1.
"""

import argparse
import importlib.util
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS, judge

KEPT = Path("out/fuzz")
SLOW_SECONDS = 5.0
MEMORY = 3 << 30
"""Bytes of address space. What would take more ends as a MemoryError, which is a finding."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("seconds", type=float, help="for all targets together")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"only these of: {', '.join(TARGETS)}")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    names = options.targets or list(TARGETS)
    share = options.seconds / len(names)
    found = 0
    has_atheris = importlib.util.find_spec("atheris") is not None
    if not has_atheris:
        print("atheris is not installed: no guided inputs", flush=True)
    for name in names:
        count, taken, faults = changed(name, share / 2 if has_atheris else share, options.seed)
        text = f"{name:12} {count:7,} inputs from seed {options.seed}: {taken:,} taken, {len(faults)} faults"
        if has_atheris:
            said, fault = guided(name, share / 2)
            text += f"; guided: {said}"
            faults += [fault] if fault else []
        print(text, flush=True)
        for fault in faults[:3]:
            print(fault)
        found += len(faults)
    return 1 if found else 0


def changed(name: str, seconds: float, seed: int) -> tuple[int, int, list[str]]:
    """How many inputs there were, how many were taken, and what was wrong."""
    chance = random.Random(f"{seed} {name}")
    count = taken = 0
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        end = time.monotonic() + seconds
        while time.monotonic() < end and len(faults) < 20:
            data = mutated(name, chance)
            count += 1
            begin = time.monotonic()
            try:
                taken += judge(name, data, Path(directory))
            except Exception:
                faults.append(f"{keep(name, data)}:\n{traceback.format_exc(limit=-4)}")
            if time.monotonic() - begin > SLOW_SECONDS:
                faults.append(f"{keep(name, data)}: took {time.monotonic() - begin:.1f} s")
    return count, taken, faults


def keep(name: str, data: bytes) -> Path:
    """The file in which an input is kept."""
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{name}-{abs(hash(data)) % 10**8:08}"
    path.write_bytes(data)
    return path


def guided(name: str, seconds: float) -> tuple[str, str]:
    """What atheris said of its inputs, and of a fault, at which it ends. It needs a process of its own."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        words = [sys.executable, "-m", "tests.fuzz.guided", str(seconds), name, directory, str(KEPT)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds + 300)
    return done.stdout.strip(), done.stderr[-3000:] if done.returncode else ""


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.exit(main())
