"""A YAML file as a tree that remembers where each key and value stands.

YAML is read as its version 1.2 has it: `no`, `on`, `1:30` and `2024-01-01` are text. One document, no tags, keys are
text and unique. Aliases share their node; what they would expand to is counted before anything is expanded.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from emulator.errors import SpecError

MAX_BYTES = 2**20
MAX_NODES = 100_000
MAX_DEPTH = 30

_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,18}|[0-9]{1,18}\.[0-9]{0,18})(?:[eE][-+]?[0-9]{1,2})?")


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written: `FILE:LINE:COLUMN`, or the option that set it."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    def error(self, message: str) -> SpecError:
        return SpecError(f"{self}: {message}")


@dataclass(slots=True)
class Node:
    """A value: a scalar, a list of nodes, or a mapping of nodes."""

    value: Any
    place: Place
    keys: dict[str, Place] = field(default_factory=dict)
    """Where each key of a mapping stands."""
    size: int = 1
    """Nodes in it, aliases expanded."""

    def plain(self) -> Any:
        """The value as dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value


def read(path: Path, most: int = MAX_BYTES, kind: str = "YAML") -> bytes:
    """The bytes of a file a person named: a regular file, of which no more than `most` bytes and one are read.

    `kind` of file is what errors ask for. Raises SpecError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file; check the name and the current directory") from None
    except PermissionError:
        raise SpecError(f"{path}: you may not read this file; check its permissions with `ls -l`") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SpecError(f"{path}: cannot be read: {reason}; give the name of a {kind} file") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise SpecError(f"{path}: is a directory; give the name of a {kind} file in it")
        if not stat.S_ISREG(mode):
            raise SpecError(f"{path}: is a device or a pipe; give the name of a {kind} file")
        with open(descriptor, "rb", closefd=False) as stream:
            return stream.read(most + 1)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}; check the disk it is on") from None
    finally:
        os.close(descriptor)


def grow(data: bytes, file: str) -> Node:
    """The tree of one YAML document of at most 1 MiB. Raises SpecError at the first thing that is not YAML."""
    if len(data) > MAX_BYTES:
        raise SpecError(f"{file}: is larger than 1 MiB; is it the file you meant? Files for emu take a few kB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1
        raise Place(file, line, column).error("is not UTF-8 text; save the file as UTF-8") from None
    try:
        return _Grower(file).document(yaml.parse(text, Loader=_Loader))
    except yaml.reader.ReaderError as error:
        before_text = text[: error.position]
        line, column = before_text.count("\n") + 1, len(before_text.rpartition("\n")[2]) + 1
        raise Place(file, line, column).error(
            "holds a control character, which no YAML may; is it a text file?"
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        assert mark is not None
        place = Place(file, mark.line + 1, mark.column + 1)
        problem = " ".join(filter(None, (error.context, error.problem)))
        advice = "indent with spaces, not tabs" if text[mark.index : mark.index + 1] == "\t" else _advice(problem)
        raise place.error(f"is not YAML: {problem}; {advice}") from None
    except yaml.YAMLError as error:
        raise SpecError(f"{file}: is not YAML: {' '.join(str(error).split())}; is it a text file?") from None


def _advice(problem: str) -> str:
    if "alias" in problem:
        return "put a value that starts with * or & in quotes, or define the anchor first"
    if "flow" in problem or "quoted" in problem:
        return "check the brackets and the quotes"
    return "check the indentation, the colons and the quotes of this line and the one above"


class _Grower:
    """Builds the tree from the parser's events, without recursion."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.nodes = 0
        self.anchors: dict[str, Node | None] = {}

    def document(self, events: Iterator[Any]) -> Node:
        """The one document. Raises SpecError."""
        root: Node | None = None
        open_nodes: list[tuple[Node, str | None]] = []
        pending: list[tuple[str, Place] | None] = []
        for event in events:
            place = Place(self.file, event.start_mark.line + 1, event.start_mark.column + 1)
            match event:
                case yaml.DocumentStartEvent() if root is not None:
                    raise place.error("a second document starts here; write one document, without `---`, in a file")
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    node, anchor = open_nodes.pop()
                    pending.pop()
                    children = node.value.values() if isinstance(node.value, dict) else node.value
                    node.size += sum(child.size for child in children)
                    if anchor is not None:
                        self.anchors[anchor] = node
                    self._check_size(node.size, place)
                    continue
                case yaml.NodeEvent():
                    node = self._node(event, place)
                case _:
                    continue
            if not open_nodes:
                root = node
            elif isinstance(open_nodes[-1][0].value, list):
                open_nodes[-1][0].value.append(node)
            elif (key := pending[-1]) is None:
                pending[-1] = self._key(event, place, open_nodes[-1][0])
            else:
                parent = open_nodes[-1][0]
                parent.value[key[0]], parent.keys[key[0]] = node, key[1]
                pending[-1] = None
            if isinstance(event, yaml.CollectionStartEvent):
                open_nodes.append((node, event.anchor))
                pending.append(None)
                if len(open_nodes) > MAX_DEPTH:
                    raise place.error(f"is nested deeper than {MAX_DEPTH} levels; write it flatter")
        if root is None or root.value is None:
            raise SpecError(f"{self.file}: is empty; start from one of the shipped files")
        return root

    def _node(self, event: Any, place: Place) -> Node:
        self.nodes += 1
        self._check_size(self.nodes, place)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise place.error(f"nothing is called &{event.anchor}; write a value that starts with * in quotes")
            target = self.anchors[event.anchor]
            if target is None:
                raise place.error(f"*{event.anchor} stands inside itself; write the value out")
            return target
        if event.tag not in (None, "!"):
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise place.error(f"has the tag {tag[:60]}; leave the tag out")
        if isinstance(event, yaml.ScalarEvent):
            node = Node(_scalar(event.value) if event.implicit[0] else event.value, place)
        else:
            node = Node({} if isinstance(event, yaml.MappingStartEvent) else [], place)
        if event.anchor is not None:
            self.anchors[event.anchor] = node if isinstance(event, yaml.ScalarEvent) else None
        return node

    def _key(self, event: Any, place: Place, parent: Node) -> tuple[str, Place]:
        if not isinstance(event, yaml.ScalarEvent):
            raise place.error("a key must be text; write `key: value`")
        if event.value in parent.keys:
            raise place.error(
                f"the key `{event.value[:60]}` stands here twice, first in line {parent.keys[event.value].line}; "
                "remove one of the two"
            )
        return event.value, place

    def _check_size(self, nodes: int, place: Place) -> None:
        if nodes > MAX_NODES:
            raise place.error(f"holds more than {MAX_NODES} values, aliases expanded; write a smaller file")


def _scalar(text: str) -> str | int | float | bool | None:
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _NULL.fullmatch(text):
        return None
    return _BOOL.get(text, text)
