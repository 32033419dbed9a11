"""A base model with an adapter in training: the loss of a batch, the weights that are trained, the folder they make."""

import warnings
from inspect import signature
from pathlib import Path
from typing import Any

from dmnrag._io import fault_point
from dmnrag._optional import require
from dmnrag.errors import ConfigError
from dmnrag.llm.adapters import CONFIG_FILE, WEIGHTS_FILE, quiet_peft
from dmnrag.llm.base_model import LocalModel
from dmnrag.training.lora_rows import MASKED, Batch
from dmnrag.training.lora_settings import LoraSettings
from dmnrag.training.lora_targets import choose_targets, uses_conv1d


class LoraModel:
    """The adapter's first weights are a function of the seed: A random, B zero, so that it starts as the base model."""

    def __init__(self, local: LocalModel, settings: LoraSettings) -> None:
        """Put a new adapter onto a loaded model, which keeps its own weights.

        Raises:
            ConfigError: layers that the model does not have.
            MissingDependencyError: peft is not installed.
        """
        torch, peft = require("torch", "lora"), require("peft", "lora")
        base = local.model
        self.targets = choose_targets(base, settings.target_modules)
        config = peft.LoraConfig(
            r=settings.rank,
            lora_alpha=settings.alpha,
            lora_dropout=settings.dropout,
            target_modules=list(self.targets),
            fan_in_fan_out=uses_conv1d(base, self.targets),
            bias="none",
            task_type="CAUSAL_LM",
            base_model_name_or_path=str(local.folder),
        )
        if settings.four_bit:
            base = peft.prepare_model_for_kbit_training(base, use_gradient_checkpointing=False)
        with torch.random.fork_rng(), quiet_peft():
            torch.manual_seed(settings.seed)
            self._model = peft.get_peft_model(base, config)
            if settings.gradient_checkpointing:
                base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        known = signature(base.forward).parameters
        self._keeps_logits, self._takes_positions = "logits_to_keep" in known, "position_ids" in known
        self.pad_id = int(local.tokenizer.pad_token_id or 0)  # masked, so any token does
        self.device = base.device
        self.bf16 = _uses_bf16(settings, base.device)
        self.trained: dict[str, Any] = {n: w for n, w in self._model.named_parameters() if w.requires_grad}
        """Weights by name, all fp32."""
        self.n_weights = sum(w.numel() for w in base.parameters() if not w.requires_grad)

    def training(self, on: bool) -> None:
        """Dropout on or off."""
        self._model.train(on)

    def summed_loss(self, batch: Batch) -> Any:
        """Cross entropy of the learnt tokens, summed; fp32, with its graph."""
        torch = require("torch", "lora")
        inputs = {"input_ids": batch.ids.to(self.device), "attention_mask": batch.mask.to(self.device)}
        if self._takes_positions:  # As generation counts them: the first token is 0, whatever padding stands before it.
            inputs["position_ids"] = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        # The tokens before the first learnt one predict nothing that counts: no output layer for them.
        kept = {"logits_to_keep": batch.width + 1} if self._keeps_logits else {}
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bf16), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*use_cache=True. is incompatible with gradient checkpointing")
            logits = self._model(**inputs, **kept, use_cache=False).logits  # (rows, at least width + 1, vocabulary)
        return torch.nn.functional.cross_entropy(
            logits[:, -(batch.width + 1) : -1].float().flatten(0, 1),
            batch.labels[:, -batch.width :].to(self.device).flatten(),
            ignore_index=MASKED,
            reduction="sum",
        )

    def save(self, folder: Path) -> None:
        """Write the adapter as peft lays it out: safetensors and its configuration."""
        peft = require("peft", "lora")
        tensors = peft.get_peft_model_state_dict(self._model, save_embedding_layers=False)
        fault_point("write", folder / WEIGHTS_FILE)
        require("safetensors.torch", "lora").save_file(
            {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
            str(folder / WEIGHTS_FILE),
            metadata={"format": "pt"},
        )
        config = self._model.peft_config["default"]
        config.inference_mode = True
        config.target_modules = list(self.targets)  # peft keeps a set, whose order is another in each process
        fault_point("write", folder / CONFIG_FILE)
        config.save_pretrained(str(folder))


def precision_of(settings: LoraSettings, device: str | None) -> tuple[str, str]:
    """(device, dtype) to load the base model with.

    Raises:
        ConfigError: 4 bits without a GPU.
    """
    cuda = require("torch", "lora").cuda
    chosen = device or ("cuda" if cuda.is_available() else "cpu")
    on_gpu = chosen.startswith("cuda")
    if settings.four_bit and not on_gpu:
        raise ConfigError(f"four_bit needs a CUDA GPU and the device is {chosen!r}: leave it out")
    bf16 = settings.precision == "bf16" or (settings.precision == "auto" and on_gpu and cuda.is_bf16_supported())
    return chosen, "bfloat16" if bf16 else "float32"


def _uses_bf16(settings: LoraSettings, device: Any) -> bool:
    return precision_of(settings, str(device))[1] == "bfloat16"
