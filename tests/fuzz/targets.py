"""All of emu that reads bytes of others: each takes any bytes and ends with a value, or with an error of emu's."""

import contextlib
import functools
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from emulator import state
from emulator.errors import EmuError
from emulator.fabric import journal
from emulator.fabric.teardown import teardown
from emulator.guest.protocol import Answer, Decoder, Opening, Progress, encode, unpack
from emulator.plan.build import build
from emulator.spec.links import links, load_profiles
from emulator.spec.load import Document, load
from emulator.spec.model import Model
from emulator.spec.model_import import import_config
from emulator.spec.profile import Profile
from emulator.spec.protocol import Protocol
from emulator.spec.shipped import Kind, shipped
from emulator.spec.topology import Topology
from emulator.spec.workload import Workload
from emulator.study import requests
from emulator.study.prepare import read_plan
from emulator.workload import result
from emulator.workload.recording import Recording
from tests.unit.test_workload_result import program_of_two, two_way_recording
from tests.unit.test_workload_result import result as result_of

Target = Callable[[Path], object]
"""Reads a file."""

DOCUMENTS: dict[Kind, type[Document]] = {
    "topology": Topology,
    "profile": Profile,
    "workload": Workload,
    "protocol": Protocol,
    "model": Model,
}


def _document(file: Path, kind: type[Document]) -> None:
    load(file, kind)


def _plan(file: Path) -> None:
    """As far as `emu up --dry-run` goes."""
    topology = load(file, Topology)
    build(topology, links(topology, load_profiles(topology), ignore_ports=True), cluster="fuzzed", run_seed=1)


def _config(file: Path) -> None:
    import_config(file, "fuzzed")


def _result(file: Path) -> None:
    result.decode(file.read_bytes())


def _journal(file: Path) -> None:
    """Taken down, too, where all that it names is below a directory that is not there: it could name real things."""
    entries = journal.read(file)
    paths = [getattr(entry, "path", "/") for entry in entries if not isinstance(entry, journal.CableEntry)]
    if all(path.startswith("/nonexistent/") and "/.." not in path for path in paths):
        teardown(file, grace_s=0)


def _record(file: Path) -> None:
    """As `ps` reads it."""
    before = os.environ.get("EMU_STATE_DIR")
    os.environ["EMU_STATE_DIR"] = str(file.parent)
    try:
        cluster = file.parent / "fuzzed"
        cluster.mkdir(exist_ok=True)
        file.replace(cluster / "cluster.json")
        state.read("fuzzed")
    finally:
        if before is None:
            del os.environ["EMU_STATE_DIR"]
        else:
            os.environ["EMU_STATE_DIR"] = before


def _wire(file: Path) -> None:
    """A stream, cut anywhere, and every kind of payload in each of its frames."""
    data = file.read_bytes()
    decoder = Decoder()
    cut = data[0] % 64 + 1 if data else 1
    for start in range(0, len(data), cut):
        for frame in decoder.feed(data[start : start + cut]):
            for kind in (Opening, Answer, Progress):
                _may_be_refused(functools.partial(unpack, frame.payload, kind))
    decoder.close()


def _may_be_refused(call: Callable[[], object]) -> None:
    with contextlib.suppress(EmuError):
        call()


TARGETS: dict[str, Target] = {
    **{kind: functools.partial(_document, kind=model) for kind, model in DOCUMENTS.items()},
    "plan": _plan,
    "config.json": _config,
    "requests": requests.read,
    "result": _result,
    "recording": Recording.load,
    "journal": _journal,
    "record": _record,
    "wire": _wire,
}


@functools.cache
def seeds(name: str) -> list[bytes]:
    """Bytes to begin from: the shipped files, or what emu itself writes."""
    if name in DOCUMENTS or name == "plan":
        kind: Kind = "topology" if name == "plan" else next(kind for kind in DOCUMENTS if kind == name)
        return [path.read_bytes() for path in shipped(kind).values()]
    return {
        "config.json": [
            b'{"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100,'
            b' "intermediate_size": 128, "torch_dtype": "bfloat16", "num_key_value_heads": 2}'
        ],
        "requests": [b"arrival_s,prompt_tokens,output_tokens\n0.25,128,64\n1.5,1,1\n"],
        "result": [result.encode(result_of(*program_of_two(3), two_way_recording()))],
        "recording": [b"\x83\xa8start_ns\x01\xa8ended_ns\x02\xa5nodes\x90"],
        "journal": [
            b'{"make":"path","path":"/nonexistent/x"}\n'
            b'{"make":"namespace","path":"/nonexistent/n","device":4,"inode":5,"cookie":6}\n'
            b'{"make":"cable","name":"a:x-y","namespaces":["x","y"],"interfaces":["a-y","a-x"]}\n'
            b'{"make":"mount","path":"/nonexistent/m","device":1,"inode":2}\n'
        ],
        "record": [msgspec.json.encode(record())],
        "wire": [encode(1, 1, b"\x82\xa4what\xa1x\xa5share\xca\x00\x00\x00\x00"), encode(3, 2, b"x" * 40)],
    }[name]


def record() -> state.Record:
    """That of a cluster of two nodes."""
    plan = read_plan("cost-2", cluster="fuzzed")
    return state.Record(
        name="fuzzed",
        topology_file="cost-2",
        place="guest",
        clock="virtual",
        plan=plan,
        created=1.0,
        owner=0,
        seed=1,
        ideal=False,
        ready=True,
    )


def judge(name: str, data: bytes, directory: Path) -> bool:
    """Whether a target takes these bytes; an error of emu's with a message is the other right outcome."""
    file = directory / f"fuzzed.{'csv' if name == 'requests' else 'yaml'}"
    file.write_bytes(data)
    try:
        TARGETS[name](file)
    except EmuError as error:
        if not str(error):
            raise AssertionError(f"{type(error).__name__} without a message") from error
        return False
    return True
