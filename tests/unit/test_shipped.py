"""The files a person starts from: each loads, fits its schema, and has the figures it is known by."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from emulator.errors import PortLimitError, SpecError
from emulator.spec.links import links, load_profiles
from emulator.spec.load import load, parse
from emulator.spec.profile import Profile, load_profile
from emulator.spec.schema import Kind, schema
from emulator.spec.shipped import resolve, shipped
from emulator.spec.topology import Topology

FILES = [
    (kind, path) for kind in ("topology", "profile", "workload", "model", "protocol") for path in shipped(kind).values()
]


@pytest.mark.parametrize(("kind", "path"), FILES, ids=lambda value: value.stem if isinstance(value, Path) else value)
def test_file_fits_its_schema(kind: Kind, path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), schema(kind))


@pytest.mark.parametrize("kind", ["topology", "profile", "workload", "model", "protocol", "result"])
def test_schema_is_one(kind: Kind) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(kind))


def _without(data: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != key}


def test_schema_refuses_what_loading_refuses() -> None:
    data = yaml.safe_load(shipped("profile")["thunderbolt5-rdma"].read_text())
    for wrong in (data | {"delay": 40}, data | {"rate": "80gbit/s"}, data | {"x": 1}, _without(data, "source")):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema("profile"))


def test_defaults_in_the_schema_fit_it() -> None:
    for kind in ("topology", "profile"):
        found = schema(kind)
        for part in (found, *found.get("$defs", {}).values()):
            for rule in part["properties"].values():
                if "default" in rule:
                    jsonschema.validate(rule["default"], rule | {"$defs": found.get("$defs", {})})


@pytest.mark.parametrize(
    ("name", "nodes", "cables"),
    [
        ("mesh4-tb5-tcp", 4, 6),
        ("mesh4-tb5-rdma", 4, 6),
        ("mesh4-tb5-rdma-measured", 4, 6),
        ("mesh4-tb5-tcp-measured", 4, 6),
        ("mesh8-tb5-rdma", 8, 28),
        ("mesh8-6-ports-tb5-rdma", 8, 24),
        ("hypercube8-tb5-rdma", 8, 12),
        ("dual-plane-8", 8, 18),
        ("dual-plane-8-rails", 8, 16),
        ("entry-4", 4, 6),
        ("performance-8", 8, 40),
        ("cost-2", 2, 1),
        ("ring4", 4, 4),
        ("switch16", 16, 16),
        ("switch4-gbe", 4, 4),
        ("h800-8", 8, 16),
        ("h800-16", 16, 32),
        ("h800-32", 32, 64),
    ],
)
def test_topology(name: str, nodes: int, cables: int) -> None:
    topology = load(shipped("topology")[name], Topology)
    assert topology.name == name
    assert len(topology.members) == nodes
    found = links(topology, load_profiles(topology), ignore_ports=name.startswith("mesh8"))
    assert len(found) == cables


def test_all_topologies_are_tested() -> None:
    tested = [mark.args[1] for mark in test_topology.pytestmark]  # type: ignore[attr-defined]
    assert sorted(name for name, *_ in tested[0]) == sorted(shipped("topology"))


def test_dual_plane_saves_cables() -> None:
    topology = load(shipped("topology")["dual-plane-8"], Topology)
    found = links(topology, load_profiles(topology))
    by_plane = {plane: sum(cable.plane == plane for cable in found) for plane in topology.planes}
    assert by_plane == {"a": 12, "b": 6}
    assert {cable.profile for cable in found if cable.plane == "b"} == {"specialised"}
    assert f"{1 - len(found) / 28:.1%}" == "35.7%"


def test_mesh_of_eight_takes_more_ports_than_there_are() -> None:
    topology = load(shipped("topology")["mesh8-tb5-rdma"], Topology)
    with pytest.raises(PortLimitError, match="n0 needs 7 thunderbolt5 ports, but can use only 3 of its 6"):
        links(topology, load_profiles(topology))


@pytest.mark.parametrize(
    ("name", "delay_ns", "jitter_ns", "rate_bps"),
    [
        ("thunderbolt5", 40_000, 10_000, 320 * 10**9),
        ("specialised", 7_500, 2_500, 800 * 10**9),
        ("pcie-switch", 1_500, 500, 512 * 10**9),
        ("thunderbolt5-tcp", 300_000, 0, 80 * 10**9),
        ("thunderbolt5-rdma", 40_000, 10_000, 80 * 10**9),
        ("thunderbolt5-offload", 10_000, 0, 80 * 10**9),
        ("thunderbolt5-rdma-measured", 4_150, 0, 39_806_377_656),
        ("thunderbolt5-tcp-measured", 287_500, 89_250, 52_600_000_000),
        ("roce-200g-measured", 1_470, 102, 111_700_000_000),
        ("roce-10g-measured", 1_630, 0, 10 * 10**9),
        ("ethernet-1g", 1_000, 0, 984_400_000),
        ("ethernet-400g", 735, 0, 400 * 10**9),
        ("nvlink-h800", 260, 0, 1280 * 10**9),
        ("pcie5-p2p-measured", 360, 0, 448 * 10**9),
        ("pcie5-switch-p2p-measured", 520, 0, 432 * 10**9),
    ],
)
def test_profile(name: str, delay_ns: int, jitter_ns: int, rate_bps: int) -> None:
    profile = load_profile(name)
    assert (profile.delay_ns, profile.jitter_ns, profile.rate) == (delay_ns, jitter_ns, rate_bps)


def test_all_profiles_are_tested() -> None:
    tested = [mark.args[1] for mark in test_profile.pytestmark]  # type: ignore[attr-defined]
    assert sorted(name for name, *_ in tested[0]) == sorted(shipped("profile"))


def test_profile_values_read_as_the_same() -> None:
    for name, path in shipped("profile").items():
        profile = load(path, Profile)
        again = Profile.model_validate(profile.model_dump(mode="json", exclude_none=True))
        assert again.model_dump() == profile.model_dump(), name


def test_examples_of_the_documents(tmp_path: Path) -> None:
    docs = Path(__file__).parents[2] / "docs"
    example = r"```yaml\n(.*?)```"
    (profile,) = re.findall(example, (docs / "profiles.md").read_text(), re.S)
    parse(profile, "docs/profiles.md", Profile)
    (tmp_path / "slow.yaml").write_text(profile.replace("my-cable", "slow"))
    whole, planes = re.findall(example, (docs / "topology.md").read_text(), re.S)
    for text, cables in ((whole, 9), ("name: a\ndescription: b\nnodes: [{count: 4, prefix: n}]\n" + planes, 4)):
        topology = parse(text, tmp_path / "t.yaml", Topology)
        assert len(links(topology, load_profiles(topology))) == cables


def test_unknown_name_is_suggested() -> None:
    with pytest.raises(SpecError, match="unknown topology `mesh4-tb5`; did you mean `mesh4-tb5-"):
        resolve("topology", "mesh4-tb5")
    with pytest.raises(SpecError, match="unknown profile `zzz`; known: ethernet-1g, "):
        resolve("profile", "zzz")
