"""Communication patterns, one file each. To add one: copy `chain.py` as `my_pattern.py` with a class `MyPattern`;
a workload file then says `pattern: my-pattern`."""

import importlib
import pkgutil
from difflib import get_close_matches
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec

from emulator.workload.patterns.base import Pattern, Team

__all__ = ["Pattern", "Team", "load_pattern", "names"]


def names() -> list[str]:
    """Every pattern, as workload files name it."""
    return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(__path__) if m.name != "base")


def load_pattern(name: str, parameters: dict[str, int | str]) -> Pattern:
    """The pattern of that name with these parameters. Raises ValueError that says what to write."""
    module = name.replace("-", "_")
    try:
        if module == "base" or not module.isidentifier():
            raise ModuleNotFoundError(name=f"{__name__}.{module}")
        found = importlib.import_module(f"{__name__}.{module}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{module}":
            raise
        close = get_close_matches(name, names(), n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(names())}"
        raise ValueError(f"unknown pattern `{name}`; {hint}") from None
    kind: type[Pattern] = getattr(found, "".join(word.capitalize() for word in name.split("-")))
    if unknown := [key for key in parameters if key not in kind.__struct_fields__]:
        raise ValueError(f"unknown parameter `{unknown[0]}`; known: {', '.join(kind.__struct_fields__) or 'none'}")
    try:
        return msgspec.convert(parameters, kind)
    except msgspec.ValidationError as error:
        # "Expected `int` >= 1 - at `$.exchanges`"
        what, _, where = str(error).partition(" - at `$.")
        kinds = get_type_hints(kind)[where.rstrip("`")]
        if get_origin(kinds) is Literal:
            raise ValueError(f"parameter `{where.rstrip('`')}`: write one of {', '.join(get_args(kinds))}") from None
        raise ValueError(f"parameter `{where.rstrip('`')}`: {what[0].lower()}{what[1:]}; write that") from None
