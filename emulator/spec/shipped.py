"""The files a person starts from: found in a checkout and in an installed package alike."""

from pathlib import Path
from typing import Literal

from emulator.errors import SpecError
from emulator.spec.load import suggest

Kind = Literal["topology", "profile", "workload", "model", "protocol", "scenario"]

DIRECTORIES: dict[Kind, str] = {
    "topology": "topologies",
    "profile": "netem_profiles",
    "workload": "workloads",
    "model": "workloads/models",
    "protocol": "protocols",
    "scenario": "scenarios",
}

_PACKAGE = Path(__file__).resolve().parent.parent


def directory(kind: Kind) -> Path:
    """Where the shipped files of a kind are. Raises SpecError where the installation is incomplete."""
    name = DIRECTORIES[kind]
    # A wheel carries them inside the package; a checkout has them next to it.
    for candidate in (_PACKAGE / "shipped" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise SpecError(f"the shipped {name} are not installed; install emu again")


def shipped(kind: Kind) -> dict[str, Path]:
    """Every shipped file of a kind by its name, sorted."""
    return {path.stem: path for path in sorted(directory(kind).glob("*.yaml"))}


def resolve(kind: Kind, name: str, beside: Path | None = None) -> Path:
    """The file that `name` means: a path (with a slash or `.yaml`), or a name.

    A path is relative to the directory of the file `beside`, or to the current one. A name is looked for in the
    directory of its kind next to `beside`, then among the shipped files. Raises SpecError with what the name may have
    meant.
    """
    base = beside.parent if beside else Path()
    if "/" in name or name.endswith((".yaml", ".yml")):
        return base / name
    own = base / DIRECTORIES[kind] / f"{name}.yaml"
    if beside and own.is_file():
        return own
    files = shipped(kind)
    if name not in files:
        also = {path.stem for path in own.parent.glob("*.yaml")} if beside else set()
        raise SpecError(f"unknown {kind} `{name[:100]}`; {suggest(name, {*files, *also})}")
    return files[name]
