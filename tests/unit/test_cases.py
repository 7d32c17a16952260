"""The cases of docs/cases.md that need no kernel: each is an input that broke another emulator."""

import gzip
from pathlib import Path

import pytest

from emulator.errors import SpecError
from emulator.fabric import support
from emulator.fabric.support import netem_support
from emulator.plan.build import build
from emulator.plan.model import Plan
from emulator.spec.links import links, load_profiles
from emulator.spec.load import parse
from emulator.spec.topology import Topology
from emulator.spec.units import RATE


def plan(link: str) -> Plan:
    """Two nodes and one cable with values of its own."""
    text = (
        "name: t\ndescription: d\nnodes: [{count: 2, prefix: n}]\nplanes:\n  a:\n    shape: line\n"
        f"    profile: thunderbolt5-tcp\n    links:\n      - {{a: n0, b: n1, {link}}}\n"
    )
    topology = parse(text, "t.yaml", Topology)
    return build(topology, links(topology, load_profiles(topology)), cluster="t", run_seed=1)


@pytest.mark.parametrize(("written", "ns"), [("0.5s", 500_000_000), ("300us", 300_000), ("0.9ms", 900_000)])
def test_c1_a_delay_is_planned_as_written(written: str, ns: int) -> None:
    cable = plan(f"delay: {written}").cables[0]
    assert cable.a.egress.delay_ns == cable.b.egress.delay_ns == ns


def test_c1_a_bare_number_is_refused_with_its_line_and_what_to_write() -> None:
    with pytest.raises(SpecError, match=r"^t\.yaml:9:\d+: 50 has no unit; write 50us or 50ms or 50s$"):
        plan("delay: 50")


@pytest.mark.parametrize("gbit", [80, 320, 800])
def test_c2_a_rate_is_planned_as_written(gbit: int) -> None:
    assert plan(f"rate: {gbit}Gbit/s").cables[0].a.egress.rate_bps == gbit * 10**9


def test_c3_the_queue_holds_more_than_delay_times_rate() -> None:
    shaping = plan("delay: 10ms, rate: 80Gbit/s").cables[0].a.egress
    assert shaping.limit_packets * 64 > 80e9 * 10e-3 / 8


@pytest.mark.parametrize(
    ("config", "answer"),
    [
        ("CONFIG_NET_SCH_NETEM=y", "builtin"),
        ("CONFIG_NET_SCH_NETEM=m", "unknown"),
        ("# CONFIG_NET_SCH_NETEM is not set", "absent"),
    ],
)
def test_c4_what_the_kernels_own_configuration_says_is_told(
    config: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(support, "_names", lambda _path, _module: False)
    monkeypatch.setattr(Path, "read_bytes", lambda _self: gzip.compress(config.encode()))
    assert support._listed("sch_netem", "CONFIG_NET_SCH_NETEM") == answer


def test_c4_this_kernel_has_an_answer() -> None:
    assert netem_support() in ("builtin", "module", "loaded", "absent", "unknown")


def test_c10_a_delay_is_one_way_and_may_differ_by_direction() -> None:
    assert [end.egress.delay_ns for end in (plan("delay: 10us").cables[0].a, plan("delay: 10us").cables[0].b)] == [
        10_000,
        10_000,
    ]
    uneven = plan("delay: 10us, b_to_a: {delay: 30us}").cables[0]
    assert (uneven.a.egress.delay_ns, uneven.b.egress.delay_ns) == (10_000, 30_000)


@pytest.mark.parametrize("written", ["32Gbit/s", "80Gbit/s", "320Gbit/s", "2.5Gbit/s"])
def test_c11_a_rate_is_shown_as_set_with_its_unit(written: str) -> None:
    assert RATE.format(RATE.parse(written)) == written
