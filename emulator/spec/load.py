"""From a YAML file to a checked model, or to one error that lists all that is wrong, with file, line and column."""

import json
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from emulator.errors import SpecError
from emulator.spec.tree import Node, Place, grow, read
from emulator.spec.units import shorten

MAX_ERRORS = 20
"""Errors shown at once; further ones are counted."""
MAX_TRANSLATED = 1000
"""Errors that are looked at: a large file may hold one in every value."""

EMPTY = "has no value; write one after the colon, or leave the line out"

Keys = tuple[str | int, ...]
Mistake = tuple[Keys, str]
"""Keys and indices that lead to a value, and what is wrong with it and what to write."""

D = TypeVar("D", bound="Document")


class Mistakes(ValueError):
    """Raised in a model's validator: what is wrong at places below the model."""

    def __init__(self, *mistakes: Mistake) -> None:
        super().__init__("; ".join(message for _, message in mistakes))
        self.mistakes = mistakes


class Part(BaseModel):
    """A mapping inside a file: unknown keys are errors, values are not converted, nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Document(Part):
    """A whole file. It remembers where its values were written."""

    _root: Node | None = PrivateAttr(None)
    _file: Path | None = PrivateAttr(None)

    @property
    def file(self) -> Path | None:
        """The file this was loaded from; None for one that was made by a program."""
        return self._file

    def error(self, mistakes: Iterable[Mistake], kind: type[SpecError] = SpecError) -> SpecError:
        """An error of class `kind` that names where in the file each mistake stands."""
        root = self._root or Node({}, Place(type(self).__name__.lower()))
        return _error(((_place(root, path), message) for path, message in mistakes), kind)

    @classmethod
    def from_tree(cls, root: Node, file: Path) -> Self:
        """Validates a tree. Raises SpecError that lists every mistake."""
        found: list[tuple[Place, str]] = []
        unseen = 0
        try:
            model = cls.model_validate_json(json.dumps(root.plain()), strict=True)
        except ValidationError as error:
            unseen = max(error.error_count() - MAX_TRANSLATED, 0)
            for details in error.errors(include_url=False)[:MAX_TRANSLATED]:
                found += _translate(details, root, cls)
        # A field that may be left out takes an empty value, too: what was meant is not known, so it is an error.
        places = {place for place, _ in found}
        found += [(place, EMPTY) for place in islice(_empty(root), MAX_TRANSLATED) if place not in places]
        if found:
            raise _error(found, SpecError, unseen)
        model._root, model._file = root, file
        return model


def load(path: Path | str, model: type[D], sets: Sequence[str] = ()) -> D:
    """The file as a `model`, after the settings `key.key=value` of `sets`. Raises SpecError."""
    return parse(read(Path(path)), path, model, sets)


def parse(text: str | bytes, path: Path | str, model: type[D], sets: Sequence[str] = ()) -> D:
    """`text` as a `model`; `path` is what errors call it. Raises SpecError."""
    root = grow(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text, str(path))
    for setting in sets:
        root = override(root, setting)
    return model.from_tree(root, Path(path))


def override(root: Node, setting: str) -> Node:
    """The tree with one value replaced: `planes.a.profile=thunderbolt5-tcp`, list items by index: `nodes.0.memory=1TB`.

    The value is YAML, as in the file. Raises SpecError that names the setting.
    """
    key, equals, value = setting.partition("=")
    place = Place(f"--set {setting[:100]}")
    if not equals or not all(key.split(".")):
        raise place.error("is not of the form KEY=VALUE; write for example --set planes.a.profile=thunderbolt5-tcp")
    if not value.strip():
        raise place.error(f"has no value; write {key}=VALUE")
    new = grow(value.encode("utf-8", "surrogatepass"), place.file)
    new.place = place
    return _replaced(root, key.split("."), new, place)


def _replaced(node: Node, keys: list[str], new: Node, place: Place) -> Node:
    """A copy of `node` with `new` at `keys`: nodes that aliases share must not change elsewhere."""
    if not keys:
        return new
    key, rest = keys[0], keys[1:]
    if isinstance(node.value, dict):
        child = node.value.get(key, Node({}, place))
        value = {**node.value, key: _replaced(child, rest, new, place)}
        return Node(value, node.place, {key: place, **node.keys} if rest else {**node.keys, key: place})
    if isinstance(node.value, list):
        if not key.isascii() or not key.isdigit() or len(key) > 6 or int(key) >= len(node.value):
            raise place.error(f"`{key}` is no item of this list; write an index of 0 to {len(node.value) - 1}")
        index = int(key)
        items = [_replaced(item, rest, new, place) if i == index else item for i, item in enumerate(node.value)]
        return Node(items, node.place)
    raise place.error(f"`{key}` would stand inside {node.value!r}, which is one value; leave `{'.'.join(keys)}` out")


def _error(found: Iterable[tuple[Place, str]], kind: type[SpecError], unseen: int = 0) -> SpecError:
    lines = [
        f"{place}: {message}" for place, message in sorted(dict.fromkeys(found), key=lambda f: (f[0].line, f[0].column))
    ]
    hidden = max(len(lines) - MAX_ERRORS, 0) + unseen
    return kind("\n".join(lines[:MAX_ERRORS] + [f"and {hidden} more errors"] * bool(hidden)))


def _place(root: Node, path: Keys, of_key: bool = False) -> Place:
    """Where the value (or its key) at `path` stands, or the innermost thing around it that was written."""
    node, place, key_place = root, next(iter(root.keys.values()), root.place), root.place
    for step in path:
        if isinstance(node.value, dict) and step in node.value:
            key_place = node.keys[str(step)]
            node = node.value[step]
        elif isinstance(node.value, list) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            key_place = node.place
        else:
            # Not written (a missing key), or a step that only the validator knows.
            continue
        scalar = not isinstance(node.value, dict | list)
        place = node.place if scalar and node.value is not None else key_place
    return key_place if of_key else place


def _empty(node: Node) -> Iterator[Place]:
    """The keys, or list items, without a value."""
    if isinstance(node.value, dict):
        for key, child in node.value.items():
            yield from [node.keys[key]] if child.value is None else _empty(child)
    elif isinstance(node.value, list):
        for child in node.value:
            yield from [child.place] if child.value is None else _empty(child)


def _translate(details: Any, root: Node, model: type[BaseModel]) -> list[tuple[Place, str]]:
    """The places and messages of one error of pydantic."""
    path: Keys = details["loc"]
    context = details.get("ctx", {})
    if isinstance(context.get("error"), Mistakes):
        return [(_place(root, path + below), message) for below, message in context["error"].mistakes]
    if details["type"] == "too_short" and details["input"]:
        # Only because its items are wrong, which is said of each.
        return []
    message = _message(details["type"], details.get("input"), context, details["msg"])
    match details["type"]:
        case "missing":
            message = f"`{path[-1]}` is missing; write `{path[-1]}: ...`"
        case "extra_forbidden":
            known = _known_keys(model, path[:-1])
            message = f"unknown key `{str(path[-1])[:60]}`; {suggest(str(path[-1]), known)}"
            return [(_place(root, path, of_key=True), message)]
    return [(_place(root, path), message)]


def suggest(name: str, known: Iterable[str]) -> str:
    """`did you mean X?`, or all that there is to choose from."""
    names = sorted(known)
    close = get_close_matches(name[:100], names, n=1, cutoff=0.6)
    more = ", ..." if len(names) > MAX_ERRORS else ""
    return f"did you mean `{close[0]}`?" if close else f"known: {', '.join(names[:MAX_ERRORS]) or 'none'}{more}"


def _message(kind: str, value: Any, context: dict[str, Any], fallback: str) -> str:
    if value is None and kind != "value_error":
        return EMPTY
    shown = shorten(value)
    match kind:
        case "value_error":
            return str(context["error"])
        case "literal_error":
            known = [word.strip("'") for word in str(context["expected"]).replace(" or ", ", ").split(", ")]
            return f"{shown} is not known here; {suggest(str(value), known)} (one of {', '.join(known)})"
        case "string_type":
            quoted = f'write it in quotes: "{shown}"' if isinstance(value, int | float) else "write text"
            return f"{shown} is not text; {quoted}"
        case "int_type" | "int_from_float" | "int_parsing":
            return f"{shown} is not a whole number; write one without a unit, for example 4"
        case "float_type" | "float_parsing" | "finite_number":
            return f"{shown} is not a number; write one without a unit, for example 1.5"
        case "bool_type" | "bool_parsing":
            return f"{shown} is not true or false; write true or false"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"{shown} stands where a mapping should; write lines of the form `key: value`"
        case "tuple_type" | "list_type":
            return f"{shown} stands where a list should; write [a, b] or lines that start with `- `"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            relation = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
            (bound, limit), *_ = context.items()
            return f"{shown} is out of bounds; write {relation[bound]} {limit}"
        case "too_short" | "string_too_short":
            return "is empty; write at least one"
        case "json_invalid":
            return "holds an escaped character that is no Unicode text; write the character itself"
    return f"{fallback}; see `emu schema`"


def _known_keys(model: type[BaseModel], path: Keys) -> list[str]:
    """The keys that the model at `path` below `model` has."""
    models = [model]
    for step in path:
        fields = [found.model_fields[step] for found in models if step in found.model_fields]
        inner = [found for field in fields for found in _models(field.annotation)]
        # Indices, keys of a dict and branches of a union stay within the models of the field before.
        models = inner or models
    return sorted({name for found in models for name in found.model_fields})


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]
