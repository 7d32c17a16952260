"""Profiles: what a file must say, and what contradicts itself."""

from pathlib import Path

import pytest

from emulator.errors import SpecError
from emulator.spec.load import parse
from emulator.spec.profile import Profile, load_profile

HEAD = "name: x\ndescription: d\ninterconnect: i\nprotocol: p\nrate: 80Gbit/s\nsource: s\n"


def test_range_is_delay_and_jitter() -> None:
    profile = parse(HEAD + "delay: 30us..50us", "x.yaml", Profile)
    assert (profile.delay_ns, profile.jitter_ns) == (40_000, 10_000)


def test_jitter_beside_a_delay() -> None:
    profile = parse(HEAD + "delay: 40us\njitter: 1us", "x.yaml", Profile)
    assert (profile.delay_ns, profile.jitter_ns) == (40_000, 1_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("delay: 50", "x.yaml:7:8: 50 has no unit; write 50us or 50ms or 50s"),
        ("delay: 30us..50us\njitter: 1us", "x.yaml:8:9: the range 30us..50us is a jitter already; leave jitter out"),
        ("delay: 40us\njitter: 41us", "x.yaml:8:9: the jitter of 41us is more than the delay of 40us"),
        ("delay: 0ns\nreorder: 1%", "x.yaml:8:10: needs packets that wait"),
        ("delay: 40us\nloss: 0.1", "x.yaml:8:7: 0.1 has no unit; write 0.1%"),
        ("delay: 40us\ncost_factor: -1", "x.yaml:8:14: -1 is out of bounds; write more than 0"),
        ("delay: 40us\ndistribution: gauss", "one of uniform, normal, pareto, paretonormal"),
        ("delay: 40us\nmtu: 9000", "x.yaml:8:6: 9000 has no unit; write 9000B"),
    ],
)
def test_refusal(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(HEAD + text, "x.yaml", Profile)
    assert message in str(caught.value)


@pytest.mark.parametrize("source", ["", "source:\n", 'source: " "\n'])
def test_source_is_required(source: str) -> None:
    with pytest.raises(SpecError, match=r"`source` is missing|x.yaml:6:\d+: (has no value|is empty)"):
        parse(HEAD.replace("source: s\n", source) + "delay: 40us", "x.yaml", Profile)


def test_name_is_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "y.yaml"
    path.write_text(HEAD + "delay: 40us")
    with pytest.raises(SpecError, match="write `name: y`"):
        load_profile(str(path))
