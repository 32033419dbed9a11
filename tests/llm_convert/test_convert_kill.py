"""kill -9 at every step that changes the disk: no folder that looks finished, and the next run ends the work."""

import os
import signal
from pathlib import Path

import pytest
from convert_checkpoints import Golden

from dmnrag import _io
from dmnrag.llm.convert import convert_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def convert(golden: Golden, out: Path, replace: bool) -> None:
    convert_checkpoint(golden.source, out, replace=replace, shard_bytes=300_000)


def n_steps(golden: Golden, out: Path, replace: bool, monkeypatch: pytest.MonkeyPatch) -> int:
    steps: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(_io, "FAULT_HOOK", lambda step, path: steps.append(step))
        convert(golden, out, replace)
    assert {"write", "fsync", "rename", "delete"} <= set(steps)
    return len(steps)


def killed_at(step: int, golden: Golden, out: Path, replace: bool) -> bool:
    """Whether a child that converts was killed before this step."""
    child = os.fork()
    if child == 0:
        seen = 0

        def hook(_step: str, _path: Path) -> None:
            nonlocal seen
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

        _io.FAULT_HOOK = hook
        try:
            convert(golden, out, replace)
        finally:
            os._exit(1 if seen == 0 else 0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def places(total: int, every: int) -> list[int]:
    """A sample over the whole run, and its last steps, where folders are renamed."""
    return sorted({*range(0, total, every), *range(max(0, total - 8), total)})


def check_every_place(golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    out = tmp_path / "new"
    for step in places(n_steps(golden, tmp_path / "whole", False, monkeypatch), every):
        assert killed_at(step, golden, out, False)
        assert not out.exists() or files_of(out) == files_of(tmp_path / "whole")
        if not out.exists():
            convert(golden, out, False)
        assert files_of(out) == files_of(tmp_path / "whole")
        convert(golden, out, True)  # Clears away what the kill left.
        assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "whole"]
        for path in out.iterdir():
            path.unlink()
        out.rmdir()


def check_replacement(golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    out = tmp_path / "out"
    convert(golden, out, False)
    new = files_of(out)
    for step in places(n_steps(golden, out, True, monkeypatch), every):
        (out / "former.txt").write_text("former", encoding="utf-8")
        former = files_of(out)
        assert killed_at(step, golden, out, True)
        # Between two renames the former one waits beside the place, and the next run, even one that is refused, puts
        # it back.
        if not out.exists():
            assert files_of(tmp_path / ".out.converting" / "former") == former
        else:
            assert files_of(out) in (former, new)
        convert(golden, out, True)
        assert files_of(out) == new
        assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_killed_conversion_leaves_nothing_that_looks_finished(
    goldens: dict[str, Golden], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_every_place(goldens["chatglm2"], tmp_path, monkeypatch, every=9)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_every_place, check_replacement])
def test_no_step_of_a_conversion_is_a_bad_one_to_be_killed_at(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: object
) -> None:
    assert callable(check)
    check(golden, tmp_path, monkeypatch, every=1)


def test_a_killed_replacement_keeps_one_of_the_two(
    goldens: dict[str, Golden], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_replacement(goldens["baichuan2"], tmp_path, monkeypatch, every=20)
