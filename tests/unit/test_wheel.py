"""What is installed holds everything that a checkout holds: files to start from, kernel configuration and patches."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_is_whole(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        f"emulator/shipped/{path.relative_to(ROOT)}"
        for name in ("topologies", "netem_profiles", "workloads", "workloads/models", "protocols", "scenarios")
        for path in (ROOT / name).glob("*.yaml")
    }
    tracked = subprocess.run(["git", "ls-files", "emulator"], cwd=ROOT, check=True, capture_output=True, text=True)
    wanted |= set(tracked.stdout.split())
    assert wanted - inside == set()
    assert any(name.endswith("licenses/LICENSE") for name in inside)
