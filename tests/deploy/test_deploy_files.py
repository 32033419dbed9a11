"""The files in deploy/: they parse, what they name exists, and the options they use are options of the command."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from dmnrag.cli.main import app
from dmnrag.errors import ConfigError
from dmnrag.service.keys import KeyRing

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def options_of(command: str) -> set[str]:
    """All option names of a command of dmnrag."""
    group: Any = typer.main.get_command(app)
    found = group.commands[command]
    return {name for parameter in found.params for name in parameter.opts if name.startswith("-")}


def check_command_line(words: list[str]) -> None:
    """A subcommand of dmnrag and its options."""
    used = {word for word in words[1:] if word.startswith("--")}
    assert used
    assert used <= options_of(words[0]), f"{words[0]} has no {used - options_of(words[0])}"


def docker_instructions() -> list[tuple[str, str]]:
    """Each instruction of the Dockerfile with its arguments, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


def compose(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    return loaded


def unit() -> dict[str, list[str]]:
    """The unit's settings, each with all its values; continued lines joined."""
    text = (DEPLOY / "dmnrag.service").read_text(encoding="utf-8").replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_dockerfile_copies_what_is_there_and_installs_known_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    copied = [
        word
        for name, rest in docker_instructions()
        if name == "COPY" and "--from" not in rest
        for word in rest.split()[:-1]
    ]
    assert "src" in copied
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}\n" in ignored
    (extras,) = (rest.partition("=")[2] for name, rest in docker_instructions() if rest.startswith("EXTRAS="))
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert (ROOT / project["readme"]).name in copied
    assert "-c constraints.txt" in next(rest for name, rest in docker_instructions() if "pip install" in rest)


def test_image_runs_as_nobody_in_particular_and_says_whether_it_lives() -> None:
    last = [name for name, _ in docker_instructions()]
    assert last.index("USER") > last.index("FROM")
    assert "root" not in dict(docker_instructions())["USER"]
    assert "/healthz" in dict(docker_instructions())["HEALTHCHECK"]
    (command,) = (rest for name, rest in docker_instructions() if name == "CMD")
    check_command_line(yaml.safe_load(command))


def test_compose_files_fit_each_other_and_the_command() -> None:
    service = compose("compose.yml")
    check_command_line(service["services"]["dmnrag"]["command"])
    assert "--store" not in service["services"]["dmnrag"]["command"]  # keeping questions is the operator's choice
    assert service["services"]["vllm"]["profiles"] == ["gpu"]
    for name in ("compose.yml", "compose.elasticsearch.yml"):
        content = compose(name)
        named = {
            volume.partition(":")[0]
            for entry in content["services"].values()
            for volume in entry.get("volumes", [])
            if not volume.startswith((".", "/", "$"))
        }
        assert named == content["volumes"].keys()
    assert not service["services"].keys() & compose("compose.elasticsearch.yml")["services"].keys()
    assert set(service["services"]["dmnrag"]["secrets"]) == service["secrets"].keys()
    build = service["services"]["dmnrag"]["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    assert {rest.partition("=")[0] for name, rest in docker_instructions() if name == "ARG"} >= build["args"].keys()


def test_the_unit_starts_the_command_with_options_that_it_has() -> None:
    found = unit()
    (start,) = found["ExecStart"]
    words = shlex.split(start)
    assert words[0].endswith("/bin/dmnrag")
    check_command_line(words[1:])
    assert "--store" not in words
    variables = set(re.findall(r"\$\{(\w+)\}", start)) - {"CREDENTIALS_DIRECTORY"}
    example = (DEPLOY / "dmnrag.env.example").read_text(encoding="utf-8")
    assert variables == set(re.findall(r"^(\w+)=", example, flags=re.MULTILINE))
    assert found["Restart"] == ["on-failure"]


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd on this machine")
    text = (DEPLOY / "dmnrag.service").read_text(encoding="utf-8")
    copy = tmp_path / "dmnrag.service"
    copy.write_text(text.replace("/opt/dmnrag/bin/dmnrag", sys.executable), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )
    about = [line for line in done.stderr.splitlines() if "dmnrag.service" in line]
    assert (done.returncode, about) == (0, [])


def test_example_keys_stop_the_start_until_they_are_changed(tmp_path: Path) -> None:
    text = (DEPLOY / "keys.example.toml").read_text(encoding="utf-8")
    file = tmp_path / "keys.toml"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="16 are needed"):
        KeyRing.load(file, {})
    for number in range(text.count('"CHANGE-ME"')):
        text = text.replace('"CHANGE-ME"', f'"{number:032x}"', 1)
    file.write_text(text, encoding="utf-8")
    ring = KeyRing.load(file, {})
    first, second = ring.find("0" * 32), ring.find("0" * 31 + "1")
    assert first is not None and second is not None  # noqa: PT018 - for the type checker
    assert (first.name, first.rate_per_minute, first.domains) == ("desk", 60, None)
    assert second.domains == {"心血管内科"}
