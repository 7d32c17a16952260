"""The fit of the one free cost on published points: by the secant method, on measured runs.

The time of a token grows with the free cost, which is slept for each all-reduce or message, as a straight line but for
what goes on beside it. Two runs of each point give its line, the cost with the least squared relative error follows,
and a run with that cost takes the place of the one further off, until the cost stays.
"""

from collections.abc import Callable, Sequence

from emulator.study.published import Point

Measured = Callable[[Point, int], float]
"""Runs a point's pattern with a free cost in ns; returns the measured time of a token in ns."""

PROBE_NS = 100_000
ROUNDS = 4
SETTLED = 0.001


def fit_cost(points: Sequence[Point], measured: Measured) -> int:
    """The free cost in ns, 0 or more, that fits the points best; 0 where there are none."""
    if not points:
        return 0
    costs = [0, PROBE_NS]
    times = [[measured(point, cost) for point in points] for cost in costs]
    for _ in range(ROUNDS):
        found = _best(points, costs, times)
        if found in costs or abs(found - costs[-1]) <= SETTLED * found:
            return found
        costs = [costs[-1], found]
        times = [times[-1], [measured(point, found) for point in points]]
    return found


def _best(points: Sequence[Point], costs: list[int], times: list[list[float]]) -> int:
    """Least squares over the points' lines through two runs."""
    top = bottom = 0.0
    for point, first, second in zip(points, *times, strict=True):
        slope = (second - first) / (costs[1] - costs[0])
        top += slope * (point.token_ns - first) / point.token_ns**2
        bottom += slope**2 / point.token_ns**2
    return max(costs[0] + round(top / bottom), 0) if bottom else 0
