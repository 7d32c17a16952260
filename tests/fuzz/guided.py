"""One target under atheris, which looks for inputs that reach new code. Called by `python -m tests.fuzz`."""

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any


def main(seconds: float, name: str, directory: Path, kept: Path) -> None:
    """Prints how many inputs there were. Ends the process: with status 0 when time is up, with another at a fault."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(
        include=["emulator.spec", "emulator.study", "emulator.workload", "emulator.fabric"]
    ):
        from tests.fuzz.targets import judge, seeds
    corpus = directory / "corpus"
    corpus.mkdir()
    for number, data in enumerate(seeds(name)):
        (corpus / str(number)).write_bytes(data)
    end = time.monotonic() + seconds
    count = 0

    def one(data: bytes) -> None:
        nonlocal count
        if time.monotonic() > end:
            print(f"{count:,} inputs", flush=True)
            os._exit(0)  # libFuzzer takes an exception for a fault
        count += 1
        judge(name, data, directory)

    words = ["fuzz", str(corpus), f"-artifact_prefix={kept}/{name}-", "-timeout=10", "-max_len=65536", "-verbosity=0"]
    atheris.Setup(words, one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
