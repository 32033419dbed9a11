"""Linear layers by oneDNN instead of MKL, forwards and backwards, in fp32 on CPUs.

torch multiplies fp32 matrices by MKL, which reaches half of what the processor can on CPUs that are not Intel's
(AMD EPYC with AVX-512, one thread: 97 GFLOP/s, oneDNN 205); these products are most of the time of an encoder and
of a local LLM. Results differ in the last digits only. Knows torch modules, nothing of encoders or LLMs.
"""

from functools import cache
from typing import Any

from dmnrag._optional import require


def use_onednn(network: Any) -> None:
    """Let every linear layer of a network on a CPU compute by oneDNN, where torch has both libraries.

    The layers stay what they are: weights, names and saving are not touched. Other precisions than fp32, autocast
    and tracing go the usual way. What is used depends on torch's build alone, so a run gives the same each time.
    """
    torch = require("torch", "dense")
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):  # no public name: torch.compile's own way to oneDNN
        return
    for module in network.modules():
        if type(module) is torch.nn.Linear and module.weight.device.type == "cpu":
            module.__class__ = _linear()


@cache
def _linear() -> Any:
    torch = require("torch", "dense")
    product = _product()

    class OneDnnLinear(torch.nn.Linear):  # type: ignore[misc, name-defined]
        def forward(self, inputs: Any) -> Any:
            if inputs.dtype != torch.float32 or torch.is_autocast_enabled("cpu") or torch.jit.is_tracing():
                return super().forward(inputs)
            return product.apply(inputs, self.weight, self.bias)

    return OneDnnLinear


@cache
def _product() -> Any:
    torch = require("torch", "dense")

    def by_onednn(inputs: Any, weight: Any, bias: Any) -> Any:
        return torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")

    class Product(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """x W^T + b; gradients g W, g^T x and the sum of g, each as a product of the same form."""

        @staticmethod
        def forward(context: Any, inputs: Any, weight: Any, bias: Any) -> Any:
            context.save_for_backward(inputs, weight)
            return by_onednn(inputs, weight, bias)

        @staticmethod
        def backward(context: Any, gradient: Any) -> tuple[Any, Any, Any]:
            inputs, weight = context.saved_tensors
            flat = gradient.reshape(-1, gradient.shape[-1])
            of_inputs = of_weight = of_bias = None
            if context.needs_input_grad[0]:
                of_inputs = by_onednn(gradient.contiguous(), weight.t().contiguous(), None)
            if context.needs_input_grad[1]:
                columns = inputs.reshape(-1, inputs.shape[-1]).t().contiguous()
                of_weight = by_onednn(flat.t().contiguous(), columns, None)
            if context.needs_input_grad[2]:
                of_bias = flat.sum(0)
            return of_inputs, of_weight, of_bias

    return Product
