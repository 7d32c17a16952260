"""For all tests: in CI, a skip that `expected_skips.txt` does not list fails the run."""

import os
import signal
from pathlib import Path

import pytest

# Where the tests run in the background, a shell has them ignore Ctrl-C, and what they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

EXPECTED = Path(__file__).with_name("expected_skips.txt")


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("CI"):
        return
    expected = {line.split("#")[0].strip() for line in EXPECTED.read_text().splitlines()} - {""}
    skipped = {report.nodeid for report in reporter.stats.get("skipped", [])}
    if unexpected := sorted(skipped - expected):
        reporter.write_line("skipped, and not listed in tests/expected_skips.txt:", red=True)
        for name in unexpected:
            reporter.write_line(f"  {name}", red=True)
        session.exitstatus = 1
