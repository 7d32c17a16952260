"""Ways through the cluster: over the fewest cables, then with the least delay, then in the order of the file."""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple


class Hop(NamedTuple):
    """One direction of a cable."""

    sender: str
    receiver: str
    cable: int
    """Index of the cable in the plan."""
    delay_ns: int


def ways_from(source: str, hops: Mapping[str, Sequence[Hop]]) -> dict[str, tuple[Hop, ...]]:
    """The best way from `source` to each node that can be reached, by Dijkstra's algorithm on (cables, delay).

    `hops` are those that leave each node.
    """
    best: dict[str, tuple[Hop, ...]] = {}
    # The running number keeps equal ways in the order in which they were found.
    queue: list[tuple[int, int, int, str, tuple[Hop, ...]]] = [(0, 0, 0, source, ())]
    number = 1
    while queue:
        count, delay, _, node, way = heapq.heappop(queue)
        if node in best:
            continue
        best[node] = way
        for hop in hops.get(node, ()):
            if hop.receiver not in best:
                heapq.heappush(queue, (count + 1, delay + hop.delay_ns, number, hop.receiver, (*way, hop)))
                number += 1
    del best[source]
    return best


def by_sender(hops: Iterable[Hop]) -> dict[str, list[Hop]]:
    """All hops that leave each node, in order."""
    table: dict[str, list[Hop]] = defaultdict(list)
    for hop in hops:
        table[hop.sender].append(hop)
    return table


def both_directions(cables: Iterable[tuple[str, str, int, int]]) -> Iterator[Hop]:
    """Hops of cables given as (a, b, delay a to b, delay b to a), in the order of the plan."""
    for index, (a, b, there, back) in enumerate(cables):
        yield Hop(a, b, index, there)
        yield Hop(b, a, index, back)
