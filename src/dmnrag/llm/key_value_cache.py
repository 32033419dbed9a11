"""The cache of keys and values that generate() fills: its name, and which can lose rows."""

import inspect
from functools import cache
from typing import Any

from dmnrag._optional import require


@cache
def cache_name() -> str:
    """`cache`, or `past_key_values` in earlier releases."""
    transformers = require("transformers", "llm")
    prepare = transformers.generation.GenerationMixin.prepare_inputs_for_generation
    return "cache" if "cache" in inspect.signature(prepare).parameters else "past_key_values"


def drops_rows(model: Any) -> bool:
    """Whether rows of a batch can be taken out of a model's cache: it holds keys and values, and nothing else."""
    transformers = require("transformers", "llm")
    layers = transformers.DynamicCache(config=model.config.get_text_config()).layers
    plain = (transformers.cache_utils.DynamicLayer, transformers.cache_utils.DynamicSlidingWindowLayer)
    return bool(layers) and all(type(layer) in plain for layer in layers)
