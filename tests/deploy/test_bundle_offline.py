"""A real bundle, built with the network and installed without any; then it answers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dmnrag.data.samples import load_sample
from dmnrag.index import IndexSettings, build_index

pytestmark = pytest.mark.slow

QUESTION = "刚查出高血压，家里应该怎么量血压才算准？"


def without_network() -> list[str]:
    """A command in front of others that leaves them no network; skips where the system allows none."""
    for command in (["unshare", "-n"], ["unshare", "-rn"]):
        if (
            shutil.which("unshare")
            and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
        ):
            return command
    pytest.skip("this system lets nobody make a network namespace (unshare -rn)")


def test_a_bundle_installs_and_answers_in_a_network_namespace_without_network(tmp_path: Path) -> None:
    unshare = without_network()
    documents, _ = load_sample("medical")
    build_index(tmp_path / "index", documents, IndexSettings())
    out = tmp_path / "there" / "dmnrag-offline.tar"
    out.parent.mkdir()
    program = "from dmnrag.cli.main import run; run()"
    command = [sys.executable, "-c", program, "bundle", str(tmp_path / "index"), "--out", str(out)]
    made = subprocess.run(
        [*command, "--llm", "fake", "--extras", "", "--json"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["bytes"] == out.stat().st_size
    shutil.rmtree(tmp_path / "index")
    prefix = tmp_path / "installed"
    install = f"tar -xf {out.name} install.sh && sh install.sh --prefix {prefix}"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHON": sys.executable, "LANG": "C.UTF-8"}
    installed = subprocess.run(
        [*unshare, "sh", "-c", install], cwd=out.parent, env=environment, capture_output=True, text=True, check=False
    )
    assert installed.returncode == 0, installed.stderr
    out.unlink()
    ask = [str(prefix / "bin/dmnrag"), "ask", str(prefix / "index"), QUESTION, "--llm", "fake", "--json"]
    asked = subprocess.run([*unshare, *ask], env=environment, capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr
    answer = json.loads(asked.stdout)
    assert answer["hits"][0]["question"] == QUESTION
    assert "135/85" in answer["answer"]
