"""Fixtures that every test may use, and the rule that nothing is skipped where all is there."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

# As the command line does: tests share their machine with each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# The same examples everywhere, so that a change is judged by what it changes. DMNRAG_EXPLORE=1 looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile("explore" if os.environ.get("DMNRAG_EXPLORE") else "repeatable")

_skipped: list[str] = []


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the checkout; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("no ../shared beside this checkout")
    return SHARED


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        _skipped.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if os.environ.get("DMNRAG_FAIL_ON_SKIP") and _skipped:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if os.environ.get("DMNRAG_FAIL_ON_SKIP") and _skipped:
        terminalreporter.write_line(f"skipped although everything is there: {', '.join(_skipped)}", red=True)
