"""Changes to a cluster that stands, as plans: other values, cables that are down, and back. Pure functions."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from emulator.errors import UsageError
from emulator.plan.build import routes_over
from emulator.plan.model import Cable, End, Plan, Shaping

replace = msgspec.structs.replace


def cables_between(plan: Plan, a: str, b: str, plane: str | None = None) -> tuple[Cable, ...]:
    """The cables that join `a` and `b`, on one plane or on all. Raises UsageError where there is none."""
    known = [node.name for node in plan.nodes]
    for name in (a, b):
        if name not in known:
            raise UsageError(f"{plan.cluster!r} has no node {name!r}; it has {', '.join(known)}")
    found = tuple(c for c in plan.cables if {c.a.node, c.b.node} == {a, b} and plane in (None, c.plane))
    if not found:
        where = f" on plane {plane!r}" if plane else ""
        raise UsageError(f"no cable joins {a} and {b}{where}; see: emu link show")
    return found


def with_values(plan: Plan, cables: Collection[Cable], values: Mapping[str, Any], sender: str | None = None) -> Plan:
    """The plan with other values (fields of Shaping) on `cables`, in both directions or in that from `sender`.

    Routes stay: who chose a way for its delay keeps it, as with real cables. Raises UsageError for values that do not
    fit each other.
    """
    names = {cable.name for cable in cables}

    def changed(cable: Cable, end: End) -> End:
        if cable.name not in names or sender not in (None, end.node):
            return end
        return replace(end, egress=_checked(cable, replace(end.egress, **values)))

    return replace(plan, cables=tuple(replace(c, a=changed(c, c.a), b=changed(c, c.b)) for c in plan.cables))


def as_built(plan: Plan, built: Plan, cables: Collection[Cable], sender: str | None = None) -> Plan:
    """The plan with the values of `built` again on `cables`."""
    names = {cable.name for cable in cables}

    def restored(now: Cable, was: Cable) -> Cable:
        if now.name not in names:
            return now
        return replace(
            now,
            a=was.a if sender in (None, now.a.node) else now.a,
            b=was.b if sender in (None, now.b.node) else now.b,
        )

    return replace(plan, cables=tuple(restored(*pair) for pair in zip(plan.cables, built.cables, strict=True)))


def with_down(plan: Plan, built: Plan, down: Collection[str]) -> Plan:
    """The plan with exactly the cables of these names down, and routes over those that are left.

    With none down the routes are those of `built`. A node that no way leads to has no route.
    """
    ordered = tuple(cable.name for cable in plan.cables if cable.name in down)
    if not ordered:
        return replace(plan, down=(), nodes=built.nodes)
    left = [cable for cable in built.cables if cable.name not in ordered]
    switches = [node.name for node in plan.nodes if node.kind == "switch"]
    routes = routes_over([node.name for node in plan.computing], left, switches)
    nodes = tuple(
        replace(node, routes=tuple(routes[node.name])) if node.kind == "node" else node for node in built.nodes
    )
    return replace(plan, down=ordered, nodes=nodes)


def parted(plan: Plan, built: Plan, groups: Collection[Collection[str]]) -> Plan:
    """The plan with all cables between the groups down, besides those that are.

    Raises UsageError for a name that is no node or in two groups, and where a way between two groups is left.
    """
    group_of: dict[str, int] = {}
    known = [node.name for node in plan.nodes]
    for number, group in enumerate(groups):
        for name in group:
            if name not in known:
                raise UsageError(f"{plan.cluster!r} has no node {name!r}; it has {', '.join(known)}")
            if name in group_of:
                raise UsageError(f"{name} is named twice; a node is on one side of a partition")
            group_of[name] = number
    between = {
        cable.name
        for cable in plan.cables
        if {cable.a.node, cable.b.node} <= set(group_of) and group_of[cable.a.node] != group_of[cable.b.node]
    }
    made = with_down(plan, built, {*plan.down, *between})
    for node in made.computing:
        for route in node.routes:
            if node.name in group_of and route.node in group_of and group_of[node.name] != group_of[route.node]:
                raise UsageError(
                    f"{node.name} would still reach {route.node} over nodes or switches that no group names; "
                    "put each of them into a group"
                )
    return made


def changes(plan: Plan, built: Plan | None) -> list[str]:
    """What differs from the plan as built, one line for each cable that is down and each value."""
    if built is None:
        return []
    found = [f"{name} down" for name in plan.down]
    for now, was in zip(plan.cables, built.cables, strict=True):
        for end, before, far in ((now.a, was.a, now.b), (now.b, was.b, now.a)):
            found += [
                f"{now.name} {end.node} to {far.node}: {field} {have} (built: {had})"
                for field in Shaping.__struct_fields__
                if (have := getattr(end.egress, field)) != (had := getattr(before.egress, field))
            ]
    return found


def _checked(cable: Cable, shaping: Shaping) -> Shaping:
    if shaping.jitter_ns > shaping.delay_ns:
        raise UsageError(
            f"cable {cable.name}: a jitter of {shaping.jitter_ns} ns is more than the delay of {shaping.delay_ns} ns; "
            "give --delay and --jitter that fit each other"
        )
    if shaping.reorder and not shaping.delay_ns:
        raise UsageError(f"cable {cable.name}: reordering needs packets that wait; give --delay, or --reorder 0%")
    return shaping
