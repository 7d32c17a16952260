"""Requested against measured, for each shipped profile on one cable without its jitter, on the virtual clock.

python -m bench.accuracy
"""

import sys
import tempfile
from pathlib import Path

from emulator.place.choose import Choice
from emulator.spec.shipped import shipped
from emulator.study.bench import Wish, bench_topology
from emulator.workload.result import Result

GUEST = Choice("guest", "virtual", "benchmark")
SMALL = Wish(tokens=1000, settings=("payload=64B", "parameters.exchanges=1"), ideal=True)
BULK = Wish(workload="bulk", ideal=True)


def main() -> int:
    """Print a line for each profile."""
    print(
        f"{'profile':<28}{'64 B asked ns':>14}{'p50':>10}{'p99':>10}{'ratio':>10}{'1 GiB of the rate':>20}{'drops':>7}"
    )
    with tempfile.TemporaryDirectory() as directory:
        for profile in shipped("profile"):
            file = Path(directory) / "one.yaml"
            file.write_text(
                f"name: one\ndescription: one cable\nnodes: [{{count: 2, prefix: n}}]\n"
                f"planes: {{a: {{shape: line, profile: {profile}}}}}\n"
            )
            small, bulk = (_run(file, wish) for wish in (SMALL, BULK))
            asked, found = small.exchange_requested_ns.p50, small.exchange_delay_ns
            share = bulk.payload_bytes * 8e9 / bulk.token_time_ns.p50 / bulk.cables[0].a_to_b.requested.rate_bps
            print(
                f"{profile:<28}{asked:>14}{found.p50:>10}{found.p99:>10}{found.p50 / asked:>10.5f}{share:>19.2%}"
                f"{bulk.cables[0].a_to_b.traffic.drops:>8}",
                flush=True,
            )
    return 0


def _run(file: Path, wish: Wish) -> Result:
    return bench_topology(str(file), GUEST, wish, lambda _what, _share: None)


if __name__ == "__main__":
    sys.exit(main())
