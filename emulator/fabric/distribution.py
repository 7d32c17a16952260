"""Delay distributions as tables of quantiles, of which netem draws one for each packet and scales it by the jitter.

The formulas are those behind tc's own tables (iproute2, netem/normal.c, pareto.c and paretonormal.c), so that a name
means the same here as there: `normal` is the standard normal; `pareto` is 4/3 (x - 3/2) for a Pareto distribution with
a = 3, whose mean is 3/2; `paretonormal` is 1/4 of the one and 3/4 of the other. 16 bits end at 4, which cuts pareto's
tail: its mean is 0.03 below 0 and its standard deviation 0.82 (paretonormal: 0.02 and 0.85; normal: 0 and 1).
"""

import array
import functools

ENTRIES = 4096
SCALE = 8192
"""One standard deviation of the kernel's tables (NETEM_DIST_SCALE of linux/pkt_sched.h)."""
_LIMIT = 32767


@functools.cache
def table(name: str) -> bytes:
    """ENTRIES signed 16-bit numbers in this machine's byte order: `normal`, `pareto` or `paretonormal`."""
    quantile = {"normal": _normal, "pareto": _pareto, "paretonormal": _paretonormal}[name]
    values = (quantile((index + 0.5) / ENTRIES) * SCALE for index in range(ENTRIES))
    return array.array("h", (max(-_LIMIT, min(_LIMIT, round(value))) for value in values)).tobytes()


def _normal(share: float) -> float:
    import statistics  # 5 ms in the guest, for a table that few plans have.

    return statistics.NormalDist().inv_cdf(share)


def _pareto(share: float) -> float:
    return float(((1 - share) ** (-1 / 3) - 1.5) * 4 / 3)


def _paretonormal(share: float) -> float:
    return 0.25 * _normal(share) + 0.75 * _pareto(share)
