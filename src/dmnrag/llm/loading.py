"""Open a causal LM of transformers from a folder or by name, never with remote code, never from pickles."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dmnrag._onednn import use_onednn
from dmnrag._optional import require
from dmnrag.errors import ConfigError
from dmnrag.llm.int8 import round_linear_layers

_MODEL_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")

_ORIGINAL_LAYOUTS = {"chatglm": "ChatGLM", "baichuan": "Baichuan"}
"""model_type of checkpoints that need their own remote code, which current transformers cannot run."""

DTYPES = ("auto", "float32", "bfloat16", "float16", "int8")


def load_causal_lm(
    name: str, *, device: str | None = None, dtype: str | None = None, four_bit: bool = False
) -> tuple[Any, Any]:
    """Model (in eval mode, on its device) and tokenizer.

    Args:
        name: A local folder or a name on the model hub.
        device: Such as "cpu" or "cuda:1"; None takes a GPU where there is one.
        dtype: One of DTYPES. None is float32 on the CPU, where a batch then gives the same texts as one prompt
            at a time, and the checkpoint's own type on a GPU. int8 rounds linear layers, for CPUs (see `int8`).
        four_bit: Linear layers in 4 bits (NF4, Dettmers et al. 2023, "QLoRA"); needs a CUDA GPU and bitsandbytes.

    Raises:
        ConfigError: no such model, a layout that is not supported, a dtype that does not exist or does not go with
            the device, or 4 bits on the CPU.
        MissingDependencyError: 4 bits without bitsandbytes, int8 without OpenVINO.
    """
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r} is not known: allowed are {', '.join(DTYPES)}")
    torch = require("torch", "llm")
    transformers = require("transformers", "llm")
    source = _source(name)
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if dtype == "int8":
        check_int8_device(device or "cpu")
        model, tokenizer = load_causal_lm(name, device="cpu", dtype="auto")  # rounded from the checkpoint's own type
        return round_linear_layers(model, name), tokenizer
    wanted = dtype or ("float32" if chosen == "cpu" else "auto")
    arguments: dict[str, Any] = {"trust_remote_code": False}
    quantised = {"quantization_config": _four_bit(torch, transformers, chosen)} if four_bit else {}
    damaged = require("safetensors", "llm").SafetensorError
    try:
        with without_bars(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, padding_side="left", **arguments)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                source, dtype=wanted, use_safetensors=True, **arguments, **quantised
            )
        model = (model if four_bit else model.to(chosen)).eval()
        use_onednn(model)
        return model, tokenizer
    except (OSError, ValueError, KeyError, RuntimeError, damaged) as error:
        raise ConfigError(f"model {name!r} cannot be loaded: {_first_line(error)}. {_HINT}") from error


_HINT = (
    "Give a folder or a hub name of a model with safetensors weights that transformers knows without remote code; "
    "without access to the hub only folders and 'builtin' work"
)


def check_int8_device(device: str) -> None:
    """Refuse a device that int8 is not for.

    Raises:
        ConfigError: not a CPU.
    """
    if device != "cpu":
        raise ConfigError(f"int8 is for CPUs and the device is {device!r}: use bfloat16, or device cpu")


def _four_bit(torch: Any, transformers: Any, device: str) -> Any:
    """How bitsandbytes loads a model, each layer's arithmetic in bf16."""
    if not device.startswith("cuda"):
        raise ConfigError(f"4 bits need a CUDA GPU and the device is {device!r}: leave --four-bit out")
    require("bitsandbytes", "qlora")
    return transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def _source(name: str) -> str:
    folder = Path(name).expanduser()
    if folder.is_dir():
        _check_folder(folder)
        return str(folder)
    if not _MODEL_NAME.fullmatch(name):
        raise ConfigError(f"no model folder {name!r}, and it is not a hub name (owner/model) either")
    return name


def _check_folder(folder: Path) -> None:
    """Refuse what transformers would answer with a riddle."""
    path = folder / "config.json"
    if not path.is_file():
        raise ConfigError(f"{folder} is not a model folder: it has no config.json")
    try:
        model_type = json.loads(path.read_text(encoding="utf-8")).get("model_type")
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{path} is not a model's configuration ({error})") from error
    if model_type in _ORIGINAL_LAYOUTS:
        raise ConfigError(
            f"{folder} holds {_ORIGINAL_LAYOUTS[model_type]} in its original layout, which needs remote code that "
            f"transformers 5 cannot run: convert the folder with `dmnrag convert-llm {folder} OUT`, then name OUT"
        )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


@contextmanager
def without_bars(transformers: Any) -> Iterator[None]:
    """No progress bar while loading or saving: talking is up to the caller."""
    logging = transformers.utils.logging
    was_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            logging.enable_progress_bar()
