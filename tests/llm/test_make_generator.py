import subprocess
import sys
from pathlib import Path

import pytest
from llm_tiny_models import save_tiny

from dmnrag.errors import ConfigError
from dmnrag.llm import make_generator


def test_fake_and_folders_and_servers_are_made_from_their_spec(tmp_path: Path) -> None:
    assert make_generator("fake").name == "fake"
    folder = save_tiny(tmp_path / "model")
    assert make_generator(str(folder)).name == str(folder)
    spec = "openai:Qwen/Qwen3-4B@http://127.0.0.1:9/v1"
    assert make_generator(spec).name == spec


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("fke", "Did you mean 'fake'"),
        ("Builtin", "Did you mean 'builtin'"),
        ("", "no LLM ''"),
        ("openai:", "write openai:MODEL@URL"),
        ("openai:model", "write openai:MODEL@URL"),
        ("openai:model@localhost:8000", "write openai:MODEL@URL"),
        ("./no/such/folder", "no model folder './no/such/folder'"),
        ("http://localhost:8000/v1", "no model folder 'http://localhost:8000/v1'"),
    ],
)
def test_other_specs_are_answered_with_the_forms_that_exist(spec: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_generator(spec)
    assert hint in str(caught.value)
    assert "openai:MODEL@URL" in str(caught.value)
    assert "'builtin'" in str(caught.value)


def test_importing_the_package_loads_no_heavy_library() -> None:
    code = (
        "import sys, dmnrag.llm, dmnrag.prompts; "
        "heavy = {'torch', 'transformers', 'openai', 'gguf', 'httpx'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
