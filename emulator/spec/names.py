"""Names of nodes, groups and planes, and ranges of them."""

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

MAX_RANGE = 4096

_NODE = r"[A-Za-z](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PLAIN = r"[A-Za-z](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_RANGE = re.compile(r"(.*?)([0-9]{1,5})\.\.(.*?)([0-9]{1,5})")


def node_name(name: str) -> str:
    """`name`, which becomes a host name. Raises ValueError."""
    if not re.fullmatch(_NODE, name) or ".." in name:
        raise ValueError(
            f"{_shown(name)} cannot be a node's name, as it becomes a host name; write letters, digits, `-`, `_` and "
            "`.`, first a letter, last a letter or digit, at most 63 characters"
        )
    if name.lower() == "localhost":
        raise ValueError("every node is `localhost` to itself; write another name")
    return name


def plain_name(name: str) -> str:
    """`name`, of a topology, group, plane or interconnect. Raises ValueError."""
    if not re.fullmatch(_PLAIN, name):
        raise ValueError(
            f"{_shown(name)} cannot be a name; write letters, digits, `-` and `_`, first a letter, last a letter or "
            "digit, at most 63 characters"
        )
    return name


def expand(text: str) -> tuple[str, ...]:
    """The names of a range: `n0..n3` is n0, n1, n2, n3; any other text is itself. Raises ValueError."""
    if ".." not in text:
        return (text,)
    match = _RANGE.fullmatch(text)
    if not match or match[1] != match[3] or not int(match[2]) <= int(match[4]) < int(match[2]) + MAX_RANGE:
        raise ValueError(f"{_shown(text)} is not a range of names; write for example n0..n3")
    return tuple(f"{match[1]}{number}" for number in range(int(match[2]), int(match[4]) + 1))


def _shown(name: str) -> str:
    return repr(name) if len(name) <= 63 else f"{name[:20]!r}... of {len(name)} characters"


NodeName = Annotated[str, AfterValidator(node_name), WithJsonSchema({"type": "string", "pattern": f"^{_NODE}$"})]
PlainName = Annotated[str, AfterValidator(plain_name), WithJsonSchema({"type": "string", "pattern": f"^{_PLAIN}$"})]
