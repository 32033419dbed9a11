"""int8 on CPUs: the linear layers of a local model computed by OpenVINO, everything else as before.

Weights have a scale for each output and are rounded when the model is loaded. Activations are rounded while they are
computed, with a scale for every few numbers of a token (OpenVINO's dynamic quantization), so a token's result does
not depend on its neighbours in a batch. The layer in front of the vocabulary keeps its activations: its errors choose
tokens directly. docs/decisions/0007 compares the libraries. Knows torch modules, nothing of prompts.
"""

from functools import cache
from typing import Any

import numpy as np

from dmnrag._openvino import load_openvino, rounded
from dmnrag._optional import require
from dmnrag.errors import ConfigError

_PROBE_TOKENS = 24
"""Tokens of the text on which int8 is compared with the model as it was: enough that the two differ visibly."""

_LEAST_COSINE = 0.95
"""Between the scores of the vocabulary before and after, on average over the probe. Sound models are above 0.99."""

_LEAST_SHARE = 0.5
"""Of the weights behind the embeddings. Mixtures of experts and GPT-2 hold theirs in other layers, which would stay
as they are."""


def round_linear_layers(model: Any, name: str) -> Any:
    """Replace every linear layer of a causal LM on the CPU by its int8 form, one after the other; returns the model.

    The rest computes in fp32 afterwards. Needs a quarter of the layers' fp32 memory, while it works that of one layer
    more.

    Raises:
        MissingDependencyError: OpenVINO is not installed.
        ConfigError: most of the weights are not in linear layers, or int8 changes the scores too much.
    """
    load_openvino()
    torch = require("torch", "llm")
    _check_share(torch, model, name)
    probe = torch.arange(_PROBE_TOKENS)[None] * 31 % model.config.get_text_config().vocab_size
    with torch.inference_mode():
        before = model(probe).logits.float()
    head = model.get_output_embeddings()
    for parent in list(model.modules()):
        for key, layer in list(parent.named_children()):
            if isinstance(layer, torch.nn.Linear):
                setattr(parent, key, _int8_linear()(layer, round_inputs=layer is not head))
    model.float()
    with torch.inference_mode():
        after = model(probe).logits
    cosine = float(torch.nn.functional.cosine_similarity(before, after, dim=-1).mean())
    if not cosine >= _LEAST_COSINE:
        raise ConfigError(
            f"int8 changes what {name!r} computes too much (mean cosine of the scores {cosine:.3f}, at least "
            f"{_LEAST_COSINE} is needed): use float32 or bfloat16"
        )
    return model


def _check_share(torch: Any, model: Any, name: str) -> None:
    embeddings = {id(model.get_input_embeddings().weight)}
    linear = {id(m.weight): m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear)}
    others = {id(p): p.numel() for p in model.parameters() if id(p) not in linear.keys() | embeddings}
    share = sum(linear.values()) / max(1, sum(linear.values()) + sum(others.values()))
    if share < _LEAST_SHARE:
        raise ConfigError(
            f"int8 acts on linear layers, which hold {share:.0%} of the weights of {name!r}: use float32 or bfloat16"
        )


@cache
def _int8_linear() -> Any:
    torch = require("torch", "llm")

    class Int8Linear(torch.nn.Module):  # type: ignore[misc, name-defined]
        """x W^T + b for fp32 inputs (.., in_features)."""

        def __init__(self, layer: Any, *, round_inputs: bool) -> None:
            super().__init__()
            self.in_features, self.out_features = layer.in_features, layer.out_features
            self.bias = layer.bias
            self._request = _compiled(torch, layer.weight.detach(), round_inputs=round_inputs)

        def forward(self, inputs: Any) -> Any:
            openvino = load_openvino()
            rows = inputs.reshape(-1, self.in_features).contiguous()
            outputs = rows.new_empty(len(rows), self.out_features)
            self._request.set_input_tensor(openvino.Tensor(rows.numpy(), shared_memory=True))
            self._request.set_output_tensor(openvino.Tensor(outputs.numpy(), shared_memory=True))
            self._request.infer()
            if self.bias is not None:
                outputs += self.bias
            return outputs.view(*inputs.shape[:-1], self.out_features)

    return Int8Linear


def _compiled(torch: Any, weight: Any, *, round_inputs: bool) -> Any:
    """A request of OpenVINO that multiplies rows (n, in_features) by the rounded weight (out_features, in_features)."""
    openvino = load_openvino()
    operations = openvino.opset8
    whole, scales = rounded(weight.float().numpy())
    rows = operations.parameter([-1, weight.shape[1]], np.float32)
    constant = operations.convert(openvino.op.Constant(whole, shared_memory=True), "f32")
    product = operations.matmul(rows, operations.multiply(constant, operations.constant(scales)), False, True)
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "NUM_STREAMS": 1,
    }
    if not round_inputs:
        settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
    model = openvino.Model([product], [rows])
    return openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
