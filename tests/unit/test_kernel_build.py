"""Building the guest kernel: everything short of the compiler."""

import threading
import time
from pathlib import Path

import msgspec
import pytest

from emulator.errors import GuestError, PlaceError, StateError
from emulator.guest import build


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "cache"
    monkeypatch.setenv("EMU_CACHE_DIR", str(directory))
    return directory


def quiet(_what: str, _share: float) -> None:
    pass


def put_kernel(cache: Path) -> Path:
    kernel = cache / f"kernel-{build.kernel_hash()}" / "linux"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("#!/bin/sh\n")
    kernel.chmod(0o755)
    known = build.KernelInfo(
        path="elsewhere",
        hash=build.kernel_hash(),
        version="6.12.1",
        size=10,
        built=1.0,
        seconds=2.0,
        source="x",
        options=[],
    )
    (kernel.parent / "info.json").write_bytes(msgspec.json.encode(known))
    return kernel


def test_hash_names_configuration_and_patches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build.kernel_hash()
    assert before == build.kernel_hash()
    copy = tmp_path / "kernel"
    (copy / "patches").mkdir(parents=True)
    for file in ("config", *(f"patches/{path.name}" for path in (build.KERNEL / "patches").iterdir())):
        (copy / file).write_text((build.KERNEL / file).read_text())
    monkeypatch.setattr(build, "KERNEL", copy)
    assert build.kernel_hash() == before
    patch = next((copy / "patches").iterdir())
    patch.write_text(patch.read_text() + "\n")
    assert build.kernel_hash() != before


def test_nothing_built(cache: Path) -> None:
    assert build.cache_dir() == cache
    assert build.find_kernel() is None
    assert build.info() is None


def test_finds_and_tells_what_is_built(cache: Path) -> None:
    kernel = put_kernel(cache)
    assert build.find_kernel() == kernel
    known = build.info()
    assert known is not None
    assert (known.path, known.version) == (str(kernel), "6.12.1")


def test_cache_of_a_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("EMU_CACHE_DIR")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert build.cache_dir() == tmp_path / ".cache/emu"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert build.cache_dir() == tmp_path / "other/emu"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert build.cache_dir() == Path("/var/cache/emu")


def test_options_that_do_not_hold() -> None:
    config = "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=y\nCONFIG_NUMBER=5\n"
    wanted = "# a comment\nCONFIG_A=y\nCONFIG_B=y\nCONFIG_NUMBER=5\n# CONFIG_C is not set\n# CONFIG_D is not set\n"
    assert build.missing_options(config, wanted) == ["CONFIG_B=y", "# CONFIG_C is not set"]


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PlaceError, match="apt-get install bc bison flex gcc libc6-dev make patch xz-utils"):
        build.build(None, quiet)


def test_other_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(PlaceError, match="x86-64 hosts only, and this is aarch64"):
        build.build(None, quiet)


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GuestError, match="has no arch/um"):
        build.build(tmp_path, quiet)
    with pytest.raises(GuestError, match="does not exist"):
        build.build(tmp_path / "nowhere.tar.xz", quiet)


def test_a_tarball_of_something_else(tmp_path: Path, cache: Path) -> None:
    tarball = tmp_path / "linux.tar"
    tarball.write_bytes(b"not a tarball at all" * 100)
    with pytest.raises(GuestError, match=r"tar failed \(see .*failed.log\)"):
        build.build(tarball, quiet)
    assert "+ tar" in (cache / "failed.log").read_text()
    assert not (cache / "build").exists()
    assert build.find_kernel() is None


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "SPACE_BYTES", 1 << 60)
    tarball = tmp_path / "linux.tar"
    tarball.touch()
    with pytest.raises(StateError, match="set EMU_CACHE_DIR"):
        build.build(tarball, quiet)


def test_a_cache_that_cannot_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tarball = tmp_path / "linux.tar"
    tarball.touch()
    monkeypatch.setenv("EMU_CACHE_DIR", str(tarball / "below"))
    with pytest.raises(StateError, match="set EMU_CACHE_DIR"):
        build.build(tarball, quiet)


def test_one_build_waits_for_the_other(cache: Path) -> None:
    cache.mkdir()
    steps: list[str] = []
    with build.locked(cache / "lock", quiet):
        result: list[Path] = []
        other = threading.Thread(target=lambda: result.append(build.build(None, lambda what, _: steps.append(what))))
        other.start()
        late = time.monotonic() + 10
        while not steps and time.monotonic() < late:
            time.sleep(0.01)
        assert steps == ["waiting for another build"]
        kernel = put_kernel(cache)
    other.join(10)
    assert result == [kernel]


def test_patches_name_their_licence_and_no_place() -> None:
    patches = sorted((build.KERNEL / "patches").glob("*.patch"))
    assert len(patches) == 7
    for patch in patches:
        text = patch.read_text()
        assert "SPDX-License-Identifier: GPL-2.0-only" in text
        files = [line.split()[1] for line in text.splitlines() if line.startswith(("--- ", "+++ "))]
        assert files
        assert all(file.startswith(("a/", "b/")) for file in files)
