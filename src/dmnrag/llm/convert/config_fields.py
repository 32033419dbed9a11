"""Reads an original config.json so that no field is passed over: each is used, checked, or known to change nothing."""

from collections.abc import Collection
from typing import Any

from dmnrag.errors import ConfigError

_WITHOUT_EFFECT = frozenset({
    "_commit_hash", "_from_model_config", "_name_or_path", "architectures", "attn_implementation", "auto_map",
    "chunk_size_feed_forward", "dtype", "gradient_checkpointing", "id2label", "initializer_range", "label2id",
    "model_type", "output_attentions", "output_hidden_states", "problem_type", "return_dict", "tokenizer_class",
    "torch_dtype", "transformers_version", "use_cache",
})  # fmt: skip
"""Fields of any transformers configuration that do not change what a causal LM computes."""

_MISSING = object()


class ConfigFields:
    """The fields of one original config.json, and which of them were looked at."""

    def __init__(self, values: dict[str, Any], title: str) -> None:
        self._values = values
        self._title = title
        self._seen = set(_WITHOUT_EFFECT)

    def size(self, name: str) -> int:
        """A whole number from 1."""
        value = self._get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._refusal(name, value, "a whole number from 1")
        return value

    def number(self, name: str) -> float:
        """A number above 0."""
        value = self._get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self._refusal(name, value, "a number above 0")
        return float(value)

    def expect(self, name: str, allowed: Collection[Any], *, absent: bool = True, meaning: str = "") -> None:
        """Refuse other values than these; `absent` says whether the field may be missing."""
        value = self._get(name, _MISSING if absent else None)
        if value is not _MISSING and not any(type(value) is type(one) and value == one for one in allowed):
            wanted = " or ".join("no value" if one is None else repr(one) for one in allowed)
            raise self._refusal(name, value, wanted, meaning)

    def ignore(self, *names: str) -> None:
        """Fields that have no effect in this model."""
        self._seen.update(names)

    def finish(self) -> None:
        """Refuse fields that nobody looked at: they may change what the model computes."""
        unknown = sorted(self._values.keys() - self._seen)
        if unknown:
            found = ", ".join(f"{name} = {self._values[name]!r}" for name in unknown)
            raise ConfigError(
                f"config.json: {found}: {self._title} has no such field, so this is a variant that cannot be converted"
            )

    def _get(self, name: str, default: Any = None) -> Any:
        self._seen.add(name)
        value = self._values.get(name, default)
        if value is None and default is None and name not in self._values:
            raise ConfigError(f"config.json lacks {name}, which {self._title} needs: take the original file")
        return value

    def _refusal(self, name: str, value: Any, wanted: str, meaning: str = "") -> ConfigError:
        reason = f" ({meaning})" if meaning else ""
        return ConfigError(f"config.json: {name} is {value!r}{reason}; of {self._title} only {wanted} can be converted")
