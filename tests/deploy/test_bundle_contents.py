"""What goes into a bundle: files of the index and its models, extras, wheels, the archive."""

import hashlib
import json
import tarfile
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from small_bundles import facts, make_wheel

from dmnrag import _io
from dmnrag.bundle import BundleSettings, build, make_bundle, wheels
from dmnrag.bundle.archive import write_archive
from dmnrag.bundle.files import index_files
from dmnrag.bundle.settings import model_files, needed_extras
from dmnrag.errors import ConfigError, IndexDamagedError, IndexLockedError, IndexMissingError
from dmnrag.index import Index, IndexSettings, build_index, update_index
from dmnrag.index.manifest import ClusterPart, Manifest
from dmnrag.retrieval.dense import DenseSettings
from dmnrag.testing.fakes import HashEncoder
from dmnrag.types import Document

DOCUMENTS = [Document(f"d{n}", f"第{n}个问题", (f"第{n}个回答",), ("内科",)) for n in range(4)]


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """An index of the first layer alone."""
    build_index(tmp_path / "sparse", DOCUMENTS, IndexSettings())
    return tmp_path / "sparse"


def dense_index(folder: Path, encoder: str) -> Path:
    """An index with vectors whose encoder is called `encoder`."""
    settings = IndexSettings(dense=DenseSettings(encoder=encoder))
    build_index(folder, DOCUMENTS, settings, encoder=HashEncoder(dimension=8))
    return folder


def as_folder(files: dict[str, Path | bytes], target: Path) -> Path:
    """What the files are on the other machine."""
    for name, content in files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.read_bytes())
    return target


def test_the_current_generation_comes_along_and_former_ones_stay(tmp_path: Path, sparse: Path) -> None:
    update_index(sparse, add=[Document("new", "新问题", ("新回答",), ("外科",))])
    (sparse / "refusal.json").write_text("{}")
    for private in ("service.sqlite", "service.sqlite-wal", "audit.jsonl", "notes.json"):
        (sparse / private).write_text("people's questions")
    with Index.open(sparse) as index:
        files = index_files(index)
        copied = as_folder(files, tmp_path / "there")
        with Index.open(copied / "index", verify=True) as there:
            assert list(there.all_documents()) == list(index.all_documents())
    assert {name.split("/")[2] for name in files if name.startswith("index/generations")} == {"000002"}
    assert files["index/refusal.json"] == sparse / "refusal.json"
    assert {name.split("/")[1] for name in files} == {"CURRENT", "refusal.json", "generations"}


def test_an_encoder_from_a_folder_becomes_a_model_of_the_index(tmp_path: Path) -> None:
    model = tmp_path / "my-encoder"
    (model / "1_Pooling").mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "1_Pooling/config.json").write_text('{"a": 1}')
    (model / ".git").mkdir()
    (model / ".git/HEAD").write_text("x")
    with Index.open(dense_index(tmp_path / "index", str(model))) as index:
        copied = as_folder(index_files(index), tmp_path / "there")
        assert needed_extras(index, BundleSettings()) == ["dense", "serve"]
        assert model_files(index, BundleSettings()) == ({}, None)
    with Index.open(copied / "index", verify=True) as there:
        encoder = Path(there.dense_settings().encoder)
    assert encoder.parent == copied / "index/models"
    assert {path.relative_to(encoder).as_posix() for path in encoder.rglob("*") if path.is_file()} == {
        "config.json",
        "1_Pooling/config.json",
    }


def test_an_encoder_that_is_not_here_is_named(tmp_path: Path) -> None:
    with (
        Index.open(dense_index(tmp_path / "index", "some/model-of-nobody")) as index,
        pytest.raises(ConfigError, match="'some/model-of-nobody' is no folder here and not in the hub's cache"),
    ):
        index_files(index)


def test_an_index_in_a_cluster_is_refused_with_the_way_out(sparse: Path) -> None:
    with Index.open(sparse) as index:
        part = ClusterPart(
            urls=["http://es:9200"], name="medical", physical="medical-000001", build="b", shards=1, replicas=0,
            vector_kind="flat", oversample=1.0, dimensions={},
        )  # fmt: skip
        index.manifest = index.manifest.model_copy(update={"backend": part})
        with pytest.raises(ConfigError, match=r"es:9200, index medical.*dmnrag migrate .* --to embedded"):
            index_files(index)


@pytest.mark.parametrize(
    ("llm", "extras"),
    [
        (None, ["serve"]),
        ("fake", ["serve"]),
        ("openai:Qwen3-4B@http://llm:8000/v1", ["openai", "serve"]),
        ("builtin", ["llm", "serve"]),
        ("/models/x:int8", ["int8", "llm", "serve"]),
    ],
)
def test_extras_follow_from_index_and_llm(sparse: Path, llm: str | None, extras: list[str]) -> None:
    with Index.open(sparse) as index:
        assert needed_extras(index, BundleSettings(llm)) == extras
        assert needed_extras(index, BundleSettings(llm, extras=())) == [e for e in extras if e != "serve"]


def test_a_local_llm_comes_along_and_is_named_as_it_will_lie_there(tmp_path: Path, sparse: Path) -> None:
    for name in ("llm", "other/adapter"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text(name)
    settings = BundleSettings(f"{tmp_path / 'llm'}:bfloat16", models=(str(tmp_path / "other/adapter"),))
    with Index.open(sparse) as index:
        files, spec = model_files(index, settings)
        assert spec == "models/llm:bfloat16"
        assert files == {
            "models/llm/config.json": tmp_path / "llm/config.json",
            "models/adapter/config.json": tmp_path / "other/adapter/config.json",
        }
        (tmp_path / "again/llm").mkdir(parents=True)
        (tmp_path / "again/llm/config.json").write_text("x")
        twice = BundleSettings(str(tmp_path / "llm"), models=(str(tmp_path / "again/llm"),))
        with pytest.raises(ConfigError, match="two of the models are called 'llm'"):
            model_files(index, twice)
        (tmp_path / "empty").mkdir()
        with pytest.raises(ConfigError, match="empty is empty"):
            model_files(index, BundleSettings(str(tmp_path / "empty")))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"llm": "bultin"}, "Did you mean 'builtin'"),
        ({"pip_args": "--index-url 'x"}, "options of pip .* cannot be read"),
        ({"extras": ("",)}, "extras"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_first(values: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BundleSettings(**values)


def test_a_package_is_packed_again_from_its_installed_files(tmp_path: Path) -> None:
    wheel = wheels.repack(distribution("pip"), tmp_path)
    with ZipFile(wheel) as content:
        names = content.namelist()
        record = content.read(next(n for n in names if n.endswith("/RECORD"))).decode().splitlines()
        code = content.read("pip/__init__.py")
    assert code == Path(str(distribution("pip").locate_file("pip/__init__.py"))).read_bytes()
    assert not [n for n in names if n.endswith((".pyc", "INSTALLER", "REQUESTED")) or n.startswith("..")]
    assert sorted(line.split(",")[0] for line in record) == sorted(names)


def test_glibc_is_the_newest_that_any_wheel_needs_and_each_needs_its_oldest() -> None:
    names = [
        "a-1-py3-none-any.whl",
        "b-1-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
        "c-1-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        "d-1-cp311-cp311-manylinux1_x86_64.whl",
        "e-1-cp311-cp311-linux_x86_64.whl",
    ]
    assert wheels.needed_glibc(names) == (2, 27)
    assert wheels.needed_glibc(names[2:]) == (2, 17)
    assert wheels.needed_glibc(names[3:]) == (2, 5)
    assert wheels.needed_glibc([names[0], names[4]]) is None


def test_versions_are_those_installed_here_without_this_package() -> None:
    lines = wheels.installed_versions()
    assert f"numpy=={distribution('numpy').version}\n" in lines
    assert not [line for line in lines if line.startswith("dmnrag=")]


def test_an_unknown_extra_is_refused_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "own_wheel", lambda *_: make_wheel(tmp_path, extras=("dense", "serve")))
    monkeypatch.setattr(wheels, "run_pip", lambda *_: pytest.fail("pip ran"))
    with pytest.raises(ConfigError, match="no extra serv: allowed are dense, serve"):
        wheels.gather_wheels(tmp_path, ["serv"], [])


def test_what_pip_says_is_shown_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"(?s)No matching distribution found for dmnrag-nothing.*--pip-args"):
        wheels.run_pip("wheel", "--no-index", "--wheel-dir", str(tmp_path), "dmnrag-nothing")


def fake_gathering(patch: pytest.MonkeyPatch) -> None:
    def gather(folder: Path, extras: list[str], options: list[str]) -> list[Path]:
        return [make_wheel(folder, extras=tuple(extras))]

    patch.setattr(build, "gather_wheels", gather)


def test_the_archive_is_a_plain_tar_whose_manifest_names_every_file(
    tmp_path: Path, sparse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gathering(monkeypatch)
    out = tmp_path / "b.tar"
    made = make_bundle(sparse, out, BundleSettings("fake"))
    assert made.sha256 == hashlib.sha256(out.read_bytes()).hexdigest()
    assert (made.n_bytes, made.n_wheels, made.extras) == (out.stat().st_size, 1, ("serve",))
    with tarfile.open(out, "r:") as tar:
        entries = tar.getmembers()
        manifest = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]
        script = tar.extractfile("install.sh").read().decode()  # type: ignore[union-attr]
        hashes = {e.name: hashlib.sha256(tar.extractfile(e).read()).hexdigest() for e in entries[2:]}  # type: ignore[union-attr]
    assert [e.name for e in entries[:2]] == ["install.sh", "manifest.json"]
    assert all(e.isreg() and (e.uid, e.mtime, e.mode) == (0, 0, 0o644) for e in entries)
    assert hashes == {name: part["sha256"] for name, part in manifest["files"].items()}
    assert manifest.keys() == facts().keys() | {"files", "format"}
    assert "@" not in script.split("<<'END_OF_PROGRAM'")[0].replace('"$@"', "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar", "sparse"]


def test_an_archive_that_is_there_stays_unless_it_may_be_replaced(
    tmp_path: Path, sparse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gathering(monkeypatch)
    out = tmp_path / "b.tar"
    out.write_text("former")
    with pytest.raises(ConfigError, match="exists; name another file, or say --replace"):
        make_bundle(sparse, out, BundleSettings())
    assert out.read_text() == "former"
    make_bundle(sparse, out, BundleSettings(), replace=True)
    assert tarfile.is_tarfile(out)


@pytest.mark.parametrize("step", ["write", "fsync", "rename"])
def test_a_disk_that_fails_leaves_the_former_archive_and_nothing_else(
    tmp_path: Path, sparse: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    fake_gathering(monkeypatch)
    out = tmp_path / "b.tar"
    out.write_text("former")

    def fail(at: str, path: Path) -> None:
        if at == step and "b.tar" in path.name:
            raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(_io, "FAULT_HOOK", fail)
    with pytest.raises(OSError, match="No space left"):
        make_bundle(sparse, out, BundleSettings(), replace=True)
    assert out.read_text() == "former"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar", "sparse"]


def test_what_a_killed_run_left_goes_with_the_next(
    tmp_path: Path, sparse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gathering(monkeypatch)
    (tmp_path / ".b.tar.work/content-1/wheels").mkdir(parents=True)
    (tmp_path / ".b.tar.work/lock").write_text("process 1 on nowhere")
    (tmp_path / ".b.tar.123.tmp").write_text("half")
    make_bundle(sparse, tmp_path / "b.tar", BundleSettings())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar", "sparse"]


def test_two_runs_for_one_archive_do_not_meet(tmp_path: Path, sparse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gathering(monkeypatch)
    work = tmp_path / ".b.tar.work"
    work.mkdir()
    with _io.writer_lock(work), pytest.raises(IndexLockedError, match=r"b\.tar\.work is being written by process"):
        make_bundle(sparse, tmp_path / "b.tar", BundleSettings())
    assert work.is_dir()


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr("dmnrag.bundle.archive.shutil.disk_usage", lambda _: usage)


@pytest.mark.usefixtures("small_disk")
def test_a_disk_without_room_is_refused_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"takes 0\.0 GB and .* free; name another place with --out"):
        write_archive(tmp_path / "b.tar", {"a": b"x" * 11}, {}, b"", lambda *_: None)
    assert list(tmp_path.iterdir()) == []


def test_targets_that_cannot_be_are_refused(tmp_path: Path, sparse: Path) -> None:
    for out, words in (
        (tmp_path, "is a folder"),
        (tmp_path / "no/b.tar", "there is no folder"),
        (tmp_path / "b $(x).tar", "stands in a script"),
    ):
        with pytest.raises(ConfigError, match=words):
            make_bundle(sparse, out, BundleSettings())


def test_no_index_and_a_damaged_one_are_refused(tmp_path: Path, sparse: Path) -> None:
    with pytest.raises(IndexMissingError, match="there is no folder"):
        make_bundle(tmp_path / "none", tmp_path / "b.tar", BundleSettings())
    part = sparse / "generations/000001/examples.jsonl"
    part.unlink()
    part.write_bytes(b"x" * Manifest.load(part.parent).parts["examples.jsonl"].bytes + b"y")
    with pytest.raises(IndexDamagedError, match=r"examples\.jsonl"):
        make_bundle(sparse, tmp_path / "b.tar", BundleSettings())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sparse"]
