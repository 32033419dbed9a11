"""What the README tells people to type exists, and what it says of sizes holds."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from dmnrag.cli.main import app
from dmnrag.data import load_sample
from dmnrag.index import IndexSettings, build_index
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.testing.fakes import HashEncoder

ROOT = Path(__file__).resolve().parents[2]
READMES = ("README.md", "README.zh-CN.md")
COMMAND: Any = typer.main.get_command(app)
"""A click group; typer brings its own copy of click, so its classes have no public name."""


def commands(text: str) -> Iterator[list[str]]:
    """Every `dmnrag ...` line inside a code block, continued lines joined."""
    for block in re.findall(r"```(?:console|bash|sh)\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words and words[0] == "dmnrag":
                yield words[1:]


def parse(words: list[str]) -> None:
    """Raises a usage error for a command or option that is not there."""
    with COMMAND.context_class(COMMAND, info_name="dmnrag") as context:
        name, command, rest = COMMAND.resolve_command(context, words)
        command.make_context(name, rest, parent=context)


def documents() -> list[Path]:
    return [ROOT / name for name in READMES] + sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("path", documents(), ids=lambda p: p.name)
def test_every_command_in_the_documentation_is_understood(path: Path) -> None:
    for words in commands(path.read_text(encoding="utf-8")):
        parse(words)


def test_a_command_that_is_not_there_would_be_found() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(["search", "index", "question", "--no-such-option"])


@pytest.mark.parametrize("name", READMES)
def test_readme_is_short_and_names_the_two_commands(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert len(text.splitlines()) < 150
    assert "make demo" in text
    assert "make test" in text


def test_both_readmes_show_the_same_commands() -> None:
    english, chinese = (list(commands((ROOT / name).read_text(encoding="utf-8"))) for name in READMES)
    assert [words[0] for words in english] == [words[0] for words in chinese]


def test_links_in_the_documentation_lead_somewhere() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in documents()
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]
    assert broken == []


@pytest.mark.parametrize("readme", READMES)
def test_python_examples_in_the_readme_run(
    readme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the fakes in place of the built-in models, which are for the heavier tests."""
    documents, _ = load_sample("medical")
    settings = IndexSettings(dense=DenseSettings(encoder="fake"))
    build_index(tmp_path / "demo-medical" / "index", documents, settings, encoder=HashEncoder())
    monkeypatch.chdir(tmp_path)
    [block] = re.findall(r"```python\n(.*?)```", (ROOT / readme).read_text(encoding="utf-8"), re.DOTALL)
    assert 'llm="builtin"' in block
    exec(block.replace('llm="builtin"', 'llm="fake"'), {})
    assert "med-" in capsys.readouterr().out
