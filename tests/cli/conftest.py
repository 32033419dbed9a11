"""Runs the command as a person does: arguments in; exit code, stdout and stderr out."""

import sys

import pytest
from cli_runner import Outcome, RunCli

from dmnrag.cli.main import run


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCli:
    """`run_cli("info", folder)`: the entry point in this process, so that faults can be put in."""

    def _run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["dmnrag", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            run()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return _run
