"""Random sequences of commands and kills: python -m tests.guest.stateful SEQUENCES [FIRST_SEED]

A sequence is drawn from its number alone, so that one that fails may be played again; what a kill hits is up to the
scheduler. After each step `ps` must tell the truth; after the last, `down --all` must leave nothing.
"""

import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.guest.commands import DOCUMENTED, Commands, Done, ended

NAMES = ("one", "two")
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Sequence:
    """One sequence; `steps` tells what was done."""

    def __init__(self, seed: int, base: Path) -> None:
        self.random = random.Random(seed)
        self.emu = Commands(base)
        self.steps: list[str] = []

    def run(self) -> None:
        """Raises AssertionError where something is not as it has to be."""
        try:
            for _ in range(self.random.randint(2, 5)):
                self.random.choice((self.plain, self.plain, self.killed, self.killed, self.together, self.death))()
                self.truthful()
        finally:
            self.emu.all_down()

    def words(self) -> tuple[str, ...]:
        """A command."""
        name = self.random.choice(NAMES)
        return self.random.choice(
            [
                ("up", str(self.emu.pair), "--name", name),
                ("up", str(self.emu.pair), "--name", name),
                ("up", "mesh4-tb5-rdma", "--name", name),
                ("bench", name, "--tokens", "5", "--json"),
                ("bench", str(self.emu.pair), "--tokens", "5", "--json"),
                ("exec", "--cluster", name, "n0", "--", "ping", "-c", "2", "n1"),
                ("ps", "--json"),
                ("down", name),
            ]
        )

    def plain(self) -> None:
        words = self.words()
        self.steps.append(" ".join(words))
        self.judge(self.emu(*words))

    def killed(self) -> None:
        """A command is ended by a signal after a while, or has ended before."""
        words, number = self.words(), self.random.choice(SIGNALS)
        after = self.random.choice((0.05, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0))
        self.steps.append(f"{' '.join(words)}, {number.name} after {after} s")
        with self.emu.start(*words) as process:
            time.sleep(after)
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)
            self.judge(ended(process), number)

    def together(self) -> None:
        """Two commands at once."""
        pair = self.words(), self.words()
        self.steps.append(" | ".join(" ".join(words) for words in pair))
        with self.emu.start(*pair[0]) as first, self.emu.start(*pair[1]) as second:
            for process in (first, second):
                self.judge(ended(process))

    def death(self) -> None:
        """kill -9 of any process that belongs to a cluster: supervisor, guest kernel, a process of the guest."""
        found = sorted(self.emu.processes())
        if not found:
            return
        pid = self.random.choice(found)
        self.steps.append(f"kill -9 of one of {len(found)} processes")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        time.sleep(self.random.choice((0.0, 0.3)))

    def judge(self, done: Done, number: int | None = None) -> None:
        signalled = number is not None and done.returncode in (-number, 128 + number)
        assert signalled or done.returncode in DOCUMENTED, (done.returncode, done.stderr)
        if done.returncode > 0 and not signalled and done.args[0] != "exec":
            assert "error:" in done.stderr, (done.args, done.returncode, done.stderr)

    def truthful(self) -> None:
        """What `ps` calls up can be used, and nothing else can; a kill takes a moment to be felt."""
        end = time.monotonic() + 5
        while True:
            listed = self.emu.listed()
            works = {name: self.emu("exec", "--cluster", name, "n0", "--", "true").returncode == 0 for name in NAMES}
            if all((listed.get(name) == "up") == works[name] for name in NAMES):
                break
            assert time.monotonic() < end, (listed, works)
        directories = {path.name for path in self.emu.state.iterdir() if path.is_dir()}
        assert directories == set(listed), (directories, listed)


def play(seed: int) -> list[str]:
    """One sequence, in a directory of its own; returns its steps. Raises AssertionError that tells them."""
    with tempfile.TemporaryDirectory(prefix="emu-sequence-") as base:
        sequence = Sequence(seed, Path(base))
        try:
            sequence.run()
        except BaseException as error:
            steps = "".join(f"\n  {step}" for step in sequence.steps)
            raise AssertionError(f"sequence {seed}:{steps}\n{type(error).__name__}: {error}") from error
    return sequence.steps


def main() -> int:
    count = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    begin = time.monotonic()
    steps = failed = 0
    for seed in range(first, first + count):
        try:
            steps += len(play(seed))
        except AssertionError as error:
            failed += 1
            print(error, flush=True)
        print(f"\r{seed - first + 1} sequences, {steps} steps, {failed} failed", end="", flush=True)
    print(f", {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
