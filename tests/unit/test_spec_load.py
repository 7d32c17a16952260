"""Files: one model, or one error that names file, line, column, what is wrong and what to write."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator.errors import SpecError
from emulator.spec.load import load, parse
from emulator.spec.profile import Profile
from emulator.spec.shipped import shipped
from emulator.spec.topology import Topology
from emulator.spec.tree import MAX_BYTES

GOOD = (shipped("topology")["dual-plane-8"]).read_text()


def refusal(text: str | bytes, *sets: str) -> str:
    with pytest.raises(SpecError) as caught:
        parse(text, "x.yaml", Topology, sets)
    return str(caught.value)


def bomb() -> str:
    levels = [f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]" for i in range(12)]
    return "\n".join(["a: &a [x, x, x, x, x, x, x, x, x]", *levels])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.yaml: is empty"),
        ("# nothing\n", "x.yaml: is empty"),
        ("just words", "x.yaml:1:1: 'just words' stands where a mapping should"),
        ("- a", "x.yaml:1:1: a list stands where a mapping should"),
        ("a: b: c", "x.yaml:1:5: is not YAML: mapping values are not allowed"),
        ("a:\n\tb: c", "x.yaml:2:1: is not YAML: "),
        ("a:\n\tb: c", "indent with spaces, not tabs"),
        ("a: [1", "check the brackets"),
        ("a: *b", "x.yaml:1:4: nothing is called &b"),
        ("a: &x [*x]", "x.yaml:1:8: *x stands inside itself"),
        ("a: !!python/object:os.system x", "x.yaml:1:4: has the tag !!python/object:os.system; leave the tag out"),
        ("a: !x y", "has the tag !x"),
        ("a: 1\n---\nb: 2", "x.yaml:2:1: a second document"),
        ("a: 1\na: 2", "x.yaml:2:1: the key `a` stands here twice, first in line 1"),
        ("[1]: 2", "x.yaml:1:1: a key must be text"),
        ("a: \0", "x.yaml:1:4: holds a control character"),
        (b"a: 1\nb: \xc3\xa4\xff", "x.yaml:2:5: is not UTF-8 text"),
        ("[" * 1000, "is nested deeper than 30 levels"),
        ("a: [" * 900, "is nested deeper than 30 levels"),
        (bomb(), "holds more than 100000 values, aliases expanded"),
        ("a: [" + "1," * 200_000 + "]", "holds more than 100000 values"),
        ("#" * MAX_BYTES + "#", "larger than 1 MiB"),
    ],
)
def test_what_is_not_one_document(text: str | bytes, message: str) -> None:
    start = time.monotonic()
    assert message in refusal(text)
    assert time.monotonic() - start < 5


def test_all_mistakes_are_listed_in_order() -> None:
    nodes = "nodes:\n  - {count: 4, memory: 512, prefix: n}\n  - {nam: a}\n"
    text = f"name: x y\n{nodes}planes:\n  a: {{shape: mesh}}\nipv6: no\n"
    assert refusal(text).splitlines() == [
        "x.yaml:1:1: `description` is missing; write `description: ...`",
        "x.yaml:1:7: 'x y' cannot be a name; write letters, digits, `-` and `_`, first a letter, last a letter or "
        "digit, at most 63 characters",
        "x.yaml:3:24: 512 has no unit; write 512B or 512GB or 512GiB",
        "x.yaml:4:6: unknown key `nam`; did you mean `name`?",
        "x.yaml:6:3: `profile` is missing; write `profile: ...`",
        "x.yaml:6:14: 'mesh' is not known here; did you mean `full-mesh`? (one of full-mesh, ring, line, star, switch, "
        "rails, links)",
        "x.yaml:7:7: 'no' is not true or false; write true or false",
    ]


def test_many_mistakes_are_counted() -> None:
    start = time.monotonic()
    lines = refusal("nodes: [" + "{x: 1}," * 30_000 + "]").splitlines()
    assert len(lines) == 21
    assert lines[-1].startswith("and ")
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("name", ["no", "on", "y", "off", "yes"])
def test_words_of_yaml_1_1_are_names(name: str) -> None:
    text = f"name: t\ndescription: d\nnodes:\n  - name: {name}\n"
    assert list(parse(text, "x.yaml", Topology).members) == [name]


def test_values_are_not_converted() -> None:
    text = "name: 1\ndescription: true\nnodes:\n  - {count: true, prefix: n}\n  - {count: 1.5, prefix: m}\n"
    assert refusal(text).splitlines() == [
        'x.yaml:1:7: 1 is not text; write it in quotes: "1"',
        'x.yaml:2:14: true is not text; write it in quotes: "true"',
        "x.yaml:4:13: true is not a whole number; write one without a unit, for example 4",
        "x.yaml:5:13: 1.5 is not a whole number; write one without a unit, for example 4",
    ]


def test_empty_value_is_no_default() -> None:
    assert refusal(GOOD.replace("memory: 512GB", "memory:")) == (
        "x.yaml:9:5: has no value; write one after the colon, or leave the line out"
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("planes.a.profile", "--set planes.a.profile: is not of the form KEY=VALUE"),
        ("=1", "--set =1: is not of the form KEY=VALUE"),
        ("planes..a=1", "is not of the form KEY=VALUE"),
        ("ipv6=", "--set ipv6=: has no value"),
        ("nodes.0.memory=512", "--set nodes.0.memory=512: 512 has no unit"),
        ("nodes.7.memory=1TB", "`7` is no item of this list; write an index of 0 to 0"),
        ("nodes.0.memry=1TB", "--set nodes.0.memry=1TB: unknown key `memry`; did you mean `memory`?"),
        ("name.x=1", "`x` would stand inside 'dual-plane-8', which is one value"),
        ("name=[", "is not YAML"),
    ],
)
def test_setting_is_refused_by_its_name(setting: str, message: str) -> None:
    assert message in refusal(GOOD, setting)


def test_settings_replace_values() -> None:
    sets = ("nodes.0.memory=1TB", "planes.b.profile=pcie-switch", "planes.b.nodes=[n0, n4]", "ipv6=true")
    topology = parse(GOOD, "x.yaml", Topology, sets)
    assert topology.nodes[0].memory == 10**12
    assert (topology.planes["b"].profile, topology.planes["b"].nodes) == ("pcie-switch", ("n0", "n4"))
    assert topology.ipv6


def test_setting_leaves_what_an_alias_shares() -> None:
    text = (
        "name: t\ndescription: d\nnodes:\n  - {name: a, interconnects: &i {x: {ports: 1}}}\n"
        "  - {name: b, interconnects: *i}\n"
    )
    topology = parse(text, "x.yaml", Topology, ["nodes.0.interconnects.x.ports=2"])
    assert [entry.interconnects["x"].ports for entry in topology.nodes] == [2, 1]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    looped = tmp_path / "loop.yaml"
    looped.symlink_to(looped)
    cases = {
        tmp_path / "none.yaml": "no such file",
        tmp_path: "is a directory",
        pipe: "is a device or a pipe",
        Path("/dev/zero"): "is a device or a pipe",
        looped: "cannot be read",
        tmp_path / ("x" * 300): "cannot be read",
        Path("/proc/self/mem"): "cannot be read",
    }
    for path, message in cases.items():
        with pytest.raises(SpecError, match=message):
            load(path, Topology)


def test_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(GOOD)
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(SpecError, match="you may not read this file"):
            load(path, Topology)
    finally:
        os.seteuid(user)


def _message(text: str | bytes, model: type[Topology] | type[Profile]) -> str:
    """The error, or where there is none what one would start with. Any other exception fails the test."""
    try:
        parse(text, "x.yaml", model)
    except SpecError as error:
        return str(error)
    return "x.yaml:"


_WORDS = st.sampled_from(
    [
        "name",
        "nodes",
        "planes",
        "count",
        ": ",
        "- ",
        "\n",
        "  ",
        "[",
        "]",
        "{",
        "}",
        "&a ",
        "*a ",
        "!t ",
        '"',
        "'",
        "|",
        "#",
    ]
)


@settings(max_examples=300, deadline=1000)
@given(st.binary() | st.text().map(str.encode) | st.lists(_WORDS).map("".join).map(str.encode))
def test_any_bytes_are_a_model_or_an_error(data: bytes) -> None:
    for model in (Topology, Profile):
        assert _message(data, model).startswith("x.yaml:")


@settings(max_examples=300, deadline=1000)
@given(st.data())
def test_any_damage_is_a_model_or_an_error(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(GOOD)))
    end = data.draw(st.integers(start, min(start + 30, len(GOOD))))
    damaged = GOOD[:start] + data.draw(st.text(max_size=10) | _WORDS) + GOOD[end:]
    assert _message(damaged, Topology).startswith("x.yaml:")
