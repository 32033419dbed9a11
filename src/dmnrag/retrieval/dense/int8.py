"""int8 on CPUs: the network of an encoder compiled by OpenVINO, its linear layers in int8.

Weights have a scale for each output and are rounded when the model is loaded. Activations are rounded while they are
computed, with a scale for every few numbers of a token (OpenVINO's dynamic quantization): nothing is calibrated, and
no scale depends on a text's neighbours. On CPUs without int8 instructions only the weights are rounded.
sentence-transformers' own OpenVINO backend is not used: it needs optimum-intel, which asks for transformers below 5.6.
Knows networks, nothing of prompts or pooling.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from dmnrag._openvino import load_openvino, rounded
from dmnrag._optional import require
from dmnrag.errors import ConfigError
from dmnrag.retrieval.dense.quiet import quiet_transformers

_PROBE = ("a", "a b c d e f g h i j k l m n o p", "高血压头痛怎么办")
"""Texts of unequal length: what was fixed to one shape while it was traced shows."""

_LEAST_COSINE = 0.95
"""Between a token's states in fp32 and int8 over the probe, on average. Sound models are above 0.99; below this a
network was traced wrongly, or bears no rounding."""


class Int8Network:
    """The int8 form of a transformer's network, put in its place for as long as it is wanted."""

    def __init__(self, transformer: Any, name: str, threads: int) -> None:
        """Compile; takes seconds.

        Args:
            transformer: a sentence-transformers `Transformer` module, on the CPU.
            name: of the encoder, for errors.
            threads: CPU threads while encoding.

        Raises:
            MissingDependencyError: OpenVINO is not installed.
            ConfigError: OpenVINO cannot compile the network, or int8 changes its outputs too much.
        """
        self._transformer = transformer
        openvino = load_openvino()
        try:
            with quiet_transformers(), require("torch", "dense").no_grad():
                inputs, expected = _seen(transformer)
                self._forward = _compiled(openvino, transformer.model, inputs, threads)
                with self.in_place():
                    found = transformer(transformer.preprocess(list(_PROBE)))["token_embeddings"]
                cosine = _mean_cosine(expected, found, inputs["attention_mask"])
        except (RuntimeError, TypeError, ValueError, AttributeError, KeyError) as error:
            raise ConfigError(f"{name!r} cannot be compiled for int8 ({error}); use fp32") from error
        if not cosine >= _LEAST_COSINE:
            raise ConfigError(
                f"int8 changes what {name!r} computes too much (mean cosine {cosine:.3f} to fp32, at least "
                f"{_LEAST_COSINE} is needed); use fp32"
            )

    def in_place(self) -> AbstractContextManager[None]:
        """The transformer computes in int8 meanwhile. The caller keeps others from using it."""
        return _replaced(self._transformer, self._forward)


@contextmanager
def _replaced(transformer: Any, forward: Callable[..., Any]) -> Iterator[None]:
    """`forward` takes the place of the transformer's network."""
    former = transformer.model
    transformer.model = require("torch", "dense").nn.Identity()
    transformer.model.forward, transformer.model.config = forward, former.config
    try:
        yield
    finally:
        transformer.model = former


def _seen(transformer: Any) -> tuple[dict[str, Any], Any]:
    """What the network is given for the probe, by name, and the states (n, length, hidden) that come out."""
    torch = require("torch", "dense")
    network, inputs = transformer.model, {}

    def noting(**given: Any) -> Any:
        inputs.update({name: value for name, value in given.items() if isinstance(value, torch.Tensor)})
        return network(**given)

    with _replaced(transformer, noting):
        states = transformer(transformer.preprocess(list(_PROBE)))["token_embeddings"]
    return inputs, states


def _compiled(openvino: Any, network: Any, inputs: dict[str, Any], threads: int) -> Callable[..., Any]:
    """The network's `forward`, in int8."""
    torch = require("torch", "dense")
    names = list(inputs)
    with warnings.catch_warnings():  # of tracing: whether its result is right is tried afterwards
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(_positional(network, names), tuple(inputs.values()), strict=False, check_trace=False)
        graph = openvino.convert_model(traced)
    _round_weights(openvino, graph)
    compiled = openvino.Core().compile_model(
        graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    )
    output = require("transformers.modeling_outputs", "dense").BaseModelOutput

    def forward(**given: Any) -> Any:
        states = compiled([given[name].numpy() for name in names])[0]
        return output(last_hidden_state=torch.from_numpy(states))

    return forward


def _positional(network: Any, names: Sequence[str]) -> Any:
    """The network as a module of positional inputs and one output, as tracing wants it."""
    torch = require("torch", "dense")

    class Positional(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *inputs: Any) -> Any:
            return self.network(**dict(zip(names, inputs, strict=True)), return_dict=True).last_hidden_state

    return Positional().eval()


def _round_weights(openvino: Any, graph: Any) -> None:
    """Replace each weight matrix (fp32) of a linear layer by int8 with a scale for each output."""
    operations: ModuleType = openvino.opset8
    for node in graph.get_ordered_ops():
        if node.get_type_name() != "MatMul":
            continue
        constant = node.input_value(1).get_node()
        if constant.get_type_name() != "Constant" or len(constant.shape) != 2:
            continue
        outputs_first = node.get_attributes()["transpose_b"]
        whole, scales = rounded(constant.data if outputs_first else constant.data.T)
        if not outputs_first:
            whole, scales = np.ascontiguousarray(whole.T), scales.T
        widened = operations.convert(operations.constant(whole), "f32")
        node.input(1).replace_source_output(operations.multiply(widened, operations.constant(scales)).output(0))


def _mean_cosine(expected: Any, found: Any, mask: Any) -> float:
    torch = require("torch", "dense")
    cosines = torch.nn.functional.cosine_similarity(expected, found, dim=-1)
    return float(cosines[mask.bool()].mean())
