"""A base model with an adapter's update in its weights, as a folder that needs neither peft nor this package."""

from pathlib import Path

from dmnrag._io import delete_folder, fsync_path, rename, writer_lock
from dmnrag._optional import require
from dmnrag.errors import ConfigError
from dmnrag.llm.adapters import attach_adapter, check_base, read_record
from dmnrag.llm.base_model import describe_base, open_local
from dmnrag.llm.loading import without_bars


def check_merge_target(out: Path) -> None:
    """Refuse a place that is taken; asked before hours of training, too.

    Raises:
        ConfigError: the folder exists and is not empty.
    """
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ConfigError(f"{out} exists: the merged model needs a new folder, name another one")


def merge_adapter(spec: str, adapter: Path, out: Path, *, device: str | None = None) -> None:
    """Write the merged model and its tokenizer; the folder is there whole or not at all.

    Weights keep the checkpoint's type, so in bf16 the merged model differs from the unmerged one by rounding.

    Args:
        spec: of the base model, as for `open_local`.
        adapter: the adapter's folder.
        out: the folder to make.
        device: where the sums are computed.

    Raises:
        ConfigError: `out` is taken, or the adapter does not belong to the model.
        IndexLockedError: another process is merging to `out`.
    """
    check_merge_target(out)
    out = out.resolve()
    work = out.with_name(f".{out.name}.merging")
    work.mkdir(parents=True, exist_ok=True)
    try:
        with writer_lock(work):
            folder = work / "model"
            delete_folder(folder)  # of a run that was killed
            _write_merged(spec, adapter, folder, device)
            rename(folder, out)
    finally:
        delete_folder(work)


def _write_merged(spec: str, adapter: Path, folder: Path, device: str | None) -> None:
    record = read_record(adapter)
    local = open_local(spec, device=device, dtype="auto")
    if record is not None:
        check_base(record, describe_base(local))
    merged = attach_adapter(local.model, adapter).merge_and_unload(safe_merge=True)
    with without_bars(require("transformers", "lora")):
        merged.save_pretrained(folder)
    local.tokenizer.save_pretrained(folder)
    for path in sorted(folder.iterdir()):
        fsync_path(path)
