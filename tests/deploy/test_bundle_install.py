"""The installer on the other machine: what it refuses, and what it leaves when it is killed."""

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from small_bundles import facts, make_small_bundle

from dmnrag.bundle import install as installing
from dmnrag.bundle.files import Content
from dmnrag.bundle.install import InstallError, install

DRIVER = Path(__file__).with_name("killed_install.py")

PLAIN: dict[str, Content] = {"index/CURRENT": b"000001\n", "wheels/a.whl": b"A"}
"""Enough for what happens before anything is installed."""


def run_install_sh(archive: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As a person does it."""
    subprocess.run(["tar", "-xf", archive.name, "install.sh"], cwd=archive.parent, check=True)
    command = ["sh", "install.sh", *arguments]
    environment = os.environ | {"PYTHON": sys.executable, "PIP_REQUIRE_VIRTUALENV": "no", "PIP_INDEX_URL": "http://no"}
    return subprocess.run(command, cwd=archive.parent, capture_output=True, text=True, check=False, env=environment)


def test_one_command_installs_and_the_command_uses_the_bundles_models(
    tmp_path: Path, small_files: dict[str, Content]
) -> None:
    archive = make_small_bundle(tmp_path / "small.tar", small_files)
    prefix = tmp_path / "a place"
    done = run_install_sh(archive, "--prefix", str(prefix))
    assert done.returncode == 0, done.stderr
    asked = f"'{prefix}/bin/dmnrag' ask '{prefix}/index' QUESTION --llm '{prefix}/current/models/small:int8'"
    assert asked in done.stdout
    assert asked.replace(" ask ", " serve ").replace("QUESTION ", "") in done.stdout
    said = subprocess.run([prefix / "bin/dmnrag", "info"], capture_output=True, text=True, check=True)
    assert said.stdout == f"['info'] {prefix}/current/cache 1\n"
    assert (prefix / "index/generations/000001/文档.txt").read_text(encoding="utf-8") == "糖尿病"
    assert not (prefix / "current/wheels").exists()
    again = run_install_sh(archive, "--prefix", str(prefix))
    assert (again.returncode, again.stdout, again.stderr) == (0, done.stdout, "")


def fake_steps(patch: pytest.MonkeyPatch) -> None:
    for step in ("make_environment", "install_wheels", "try_out"):
        patch.setattr(installing, step, lambda *_: None)
    patch.setattr(os, "sync", lambda: None)  # it waits for every other program's files


def test_a_step_that_fails_leaves_nothing_and_shows_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_steps(monkeypatch)
    program = [sys.executable, "-c", "import sys; print('much', file=sys.stderr); sys.exit('the reason')"]
    monkeypatch.setattr(installing, "install_wheels", lambda *_: installing._run(program, "the libraries"))
    prefix = tmp_path / "p"
    with pytest.raises(InstallError, match=r"(?s)the libraries could not be set up.*much\n  the reason$"):
        install(make_small_bundle(tmp_path / "b.tar", PLAIN), prefix)
    assert list((prefix / "releases").iterdir()) == []
    assert not (prefix / "current").exists()


def test_a_later_bundle_leaves_the_index_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_steps(monkeypatch)
    first = make_small_bundle(tmp_path / "1.tar", PLAIN)
    second = make_small_bundle(tmp_path / "2.tar", PLAIN | {"index/CURRENT": b"000002\n"}, version="2.0")
    prefix = tmp_path / "p"
    install(first, prefix)
    told = install(second, prefix)
    assert "is the index that was there before" in told
    assert (prefix / "current").resolve().name.startswith("2.0-")
    assert (prefix / "index/CURRENT").read_bytes() == b"000001\n"
    assert "before" not in install(second, prefix, replace_index=True)
    assert (prefix / "index/CURRENT").read_bytes() == b"000002\n"
    assert len(list((prefix / "releases").iterdir())) == 2  # the way back


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"python": "3.99"}, r"for Python 3\.99, and .* is 3\.\d+; name another one: PYTHON=/path/python3\.99"),
        ({"machine": "vax"}, r"for Linux vax, and this machine is Linux"),
        ({"glibc": [9, 9]}, r"needs glibc 9\.9 or newer, and this machine has glibc \d"),
        ({"unpacked_bytes": 10**18}, r"takes 1000000000\.00 GB, and .* GB free"),
    ],
)
def test_another_machines_bundle_is_refused_by_name(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(InstallError, match=words):
        install(make_small_bundle(tmp_path / "b.tar", PLAIN, **changes), tmp_path / "p")
    assert not (tmp_path / "p/current").exists()


def test_the_shell_script_refuses_another_python_before_it_runs_anything(tmp_path: Path) -> None:
    archive = make_small_bundle(tmp_path / "b.tar", PLAIN, python="3.99")
    done = run_install_sh(archive, "--prefix", "p")
    assert done.returncode == 1
    assert f"is for Python 3.99, and {sys.executable} is 3." in done.stderr


def altered(archive: Path, change: Callable[[tarfile.TarFile, tarfile.TarFile], None]) -> Path:
    """A copy of the archive, as `change` writes it from the original."""
    copy = archive.with_name("altered.tar")
    with tarfile.open(archive) as source, tarfile.open(copy, "w") as target:
        change(source, target)
    return copy


def add(target: tarfile.TarFile, name: str, content: bytes, kind: bytes = tarfile.REGTYPE, link: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type, entry.linkname = len(content), kind, link
    target.addfile(entry, io.BytesIO(content))


def copy_all(source: tarfile.TarFile, target: tarfile.TarFile, without: str = "") -> None:
    for entry in source:
        if entry.name != without:
            target.addfile(entry, source.extractfile(entry))


def with_extra(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> Callable[..., None]:
    def change(source: tarfile.TarFile, target: tarfile.TarFile) -> None:
        copy_all(source, target)
        add(target, name, b"", kind, link)

    return change


def with_other(name: str, content: bytes, kind: bytes = tarfile.REGTYPE, link: str = "") -> Callable[..., None]:
    def change(source: tarfile.TarFile, target: tarfile.TarFile) -> None:
        copy_all(source, target, without=name)
        add(target, name, content, kind, link)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_other("wheels/a.whl", b"B"), "wheels/a.whl does not match its checksum"),
        (with_other("wheels/a.whl", b"AA"), "wheels/a.whl does not match its checksum"),
        (lambda s, t: copy_all(s, t, without="wheels/a.whl"), "1 files are missing, such as wheels/a.whl"),
        (with_extra("wheels/b.whl"), "holds 'wheels/b.whl', which its manifest does not name"),
        (with_extra("wheels/a.whl"), "holds 'wheels/a.whl', which its manifest does not name"),
        (with_extra("../outside"), "holds '../outside'"),
        (with_extra("link", tarfile.SYMTYPE, "/etc"), "holds 'link'"),
        (with_other("wheels/a.whl", b"", tarfile.SYMTYPE, "/etc/passwd"), "holds 'wheels/a.whl'"),
        (with_other("wheels/a.whl", b"", tarfile.LNKTYPE, "index/CURRENT"), "holds 'wheels/a.whl'"),
        (with_other("wheels/a.whl", b"", tarfile.FIFOTYPE), "holds 'wheels/a.whl'"),
        (with_other("manifest.json", b"{}"), "its manifest cannot be read"),
        (with_other("manifest.json", b"\xff"), "its manifest cannot be read"),
        (lambda s, t: copy_all(s, t, without="manifest.json"), "is no bundle: it has no manifest.json"),
    ],
)
def test_an_altered_archive_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[..., None], words: str
) -> None:
    monkeypatch.setattr(installing, "make_environment", lambda _: pytest.fail("ran on unchecked files"))
    archive = altered(make_small_bundle(tmp_path / "b.tar", PLAIN), change)
    with pytest.raises(InstallError, match=words):
        install(archive, tmp_path / "p")
    left = [path.name for path in (tmp_path / "p").rglob("*")] if (tmp_path / "p").exists() else []
    assert set(left) <= {"releases", ".lock"}
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "a/../../outside", "a\\b", "a//b", "install.sh"])
def test_a_manifest_with_a_foreign_name_is_refused(tmp_path: Path, name: str) -> None:
    archive = make_small_bundle(tmp_path / "b.tar", PLAIN | {name: b"x"})
    with pytest.raises(InstallError, match="the manifest names the file"):
        install(archive, tmp_path / "p")
    assert not (tmp_path / "p").exists()


def test_a_cut_archive_and_no_archive_are_named(tmp_path: Path) -> None:
    whole = make_small_bundle(tmp_path / "b.tar", PLAIN | {"index/big": b"x" * 50_000})
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole.read_bytes()[:-40_000])
    with pytest.raises(InstallError, match=r"cut.tar is damaged"):
        install(cut, tmp_path / "p")
    (tmp_path / "text").write_text("no tar")
    with pytest.raises(InstallError, match="damaged or no bundle"):
        install(tmp_path / "text", tmp_path / "p")
    with pytest.raises(InstallError, match=r"there is no file .*nowhere\.tar; name the bundle with --archive"):
        install(tmp_path / "nowhere.tar", tmp_path / "p")


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    archive = make_small_bundle(tmp_path / "b.tar", PLAIN)
    with pytest.raises(InstallError, match="holds other files"):
        install(archive, tmp_path)
    with pytest.raises(InstallError, match="is a file"):
        install(archive, archive)


def test_a_full_disk_is_said_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "p"))

    monkeypatch.setattr(installing, "make_environment", full)
    archive = make_small_bundle(tmp_path / "b.tar", PLAIN)
    assert installing.main(["--archive", str(archive), "--prefix", str(tmp_path / "p")]) == 1
    assert f"error: {tmp_path / 'p'}: No space left on device" in capsys.readouterr().err
    assert list((tmp_path / "p/releases").iterdir()) == []


def test_only_one_installer_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = make_small_bundle(tmp_path / "b.tar", PLAIN)
    fake_steps(monkeypatch)
    prefix = tmp_path / "p"
    with (
        installing._only_one(prefix),
        pytest.raises(InstallError, match="another installer works in"),
    ):
        install(archive, prefix)


def test_a_program_that_outlives_a_killed_installer_keeps_the_next_one_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_steps(monkeypatch)
    archive, prefix, started = make_small_bundle(tmp_path / "b.tar", PLAIN), tmp_path / "p", tmp_path / "pid"
    waiting = f"import os, time; from pathlib import Path; Path({str(started)!r}).write_text(str(os.getpid()) + '\\n')"
    program = (
        f"import runpy, sys; from pathlib import Path; own = runpy.run_path({installing.__file__!r})\n"
        f"with own['_only_one'](Path({str(prefix)!r})):\n"
        f"    own['_run']([sys.executable, '-c', {waiting + '; time.sleep(600)'!r}], 'a step')"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as installer:
        while not (started.is_file() and started.read_text().endswith("\n")):
            time.sleep(0.02)
        installer.kill()
    with pytest.raises(InstallError, match="another installer works in"):
        install(archive, prefix)
    os.kill(int(started.read_text()), signal.SIGKILL)
    while not (prefix / "current").exists():
        with contextlib.suppress(InstallError):  # until the system has ended it
            install(archive, prefix)
    assert (prefix / "current/complete").is_file()


def usable(prefix: Path, versions: tuple[str, ...]) -> None:
    """A whole release is in use, with an index and a command that runs."""
    current = prefix / "current"
    assert current.resolve().name.startswith(versions)
    assert (current / "complete").is_file()
    assert (prefix / "index/CURRENT").is_file()
    assert os.access(prefix / "bin/dmnrag", os.X_OK)


def test_killed_at_every_change_of_the_disk_it_leaves_a_usable_state_and_a_second_run_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_steps(monkeypatch)
    first = make_small_bundle(tmp_path / "1.tar", PLAIN)
    second = make_small_bundle(tmp_path / "2.tar", PLAIN | {"index/CURRENT": b"000002\n"}, version="2.0")
    clean, prefix = tmp_path / "clean", tmp_path / "p"
    install(first, clean)
    n_steps, finished = 0, False
    while not finished:
        n_steps += 1
        shutil.rmtree(prefix, ignore_errors=True)
        shutil.copytree(clean, prefix, symlinks=True)
        finished = killed_install(second, prefix, n_steps) == 0
        usable(prefix, ("1.0-", "2.0-"))
        install(second, prefix, replace_index=True)
        usable(prefix, ("2.0-",))
        assert (prefix / "index/CURRENT").read_bytes() == b"000002\n"
        assert all((release / "complete").is_file() for release in (prefix / "releases").iterdir())
        assert not list(prefix.rglob("*.new"))
    assert n_steps > 15  # files, folders, links: all were tried


def killed_install(archive: Path, prefix: Path, at: int) -> int:
    """Exit code of an installation that kills itself before its change number `at` of the disk, if it has as many."""
    command = [sys.executable, "-I", "-S", str(DRIVER), installing.__file__, str(at), str(archive), str(prefix)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, -9), done.stderr
    return done.returncode


def test_facts_name_everything_that_the_installer_reads(tmp_path: Path) -> None:
    manifest, _ = installing.read_manifest(make_small_bundle(tmp_path / "b.tar", PLAIN))
    assert manifest.keys() == facts().keys() | {"files", "format"}
