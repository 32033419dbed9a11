"""Fixtures that every test may use, and the rule that nothing is skipped where all is there."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

# As the command line does: tests share their machine with each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

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
