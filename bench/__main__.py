"""`make bench`: every benchmark, one after the other."""

import sys

from bench import accuracy, bringup, exchanges


def main() -> int:
    """Run all; 1 where one of them is over its limit."""
    failed = 0
    for name, run in (("bring-up", bringup.main), ("exchanges", exchanges.main), ("accuracy", accuracy.main)):
        print(f"== {name}", flush=True)
        failed |= run()
    return failed


if __name__ == "__main__":
    sys.exit(main())
