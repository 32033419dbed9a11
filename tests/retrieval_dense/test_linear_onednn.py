"""oneDNN's linear layers against torch's."""

import copy
from typing import Any

import pytest

from dmnrag._onednn import use_onednn

torch = pytest.importorskip("torch")


def layers(bias: bool) -> tuple[Any, Any]:
    """The same layer twice, the second one by oneDNN."""
    torch.manual_seed(0)
    plain, changed = torch.nn.Linear(7, 5, bias=bias), torch.nn.Linear(7, 5, bias=bias)
    changed.load_state_dict(plain.state_dict())
    use_onednn(torch.nn.Sequential(changed))
    return plain, changed


def results(layer: Any, inputs: Any, *, inputs_learn: bool = True) -> list[Any]:
    """Outputs, and the gradients of a sum of squares."""
    given = inputs.clone().requires_grad_(inputs_learn)  # lies in memory as `inputs` does
    outputs = layer(given)
    (outputs**2).sum().backward()
    return [outputs.detach(), given.grad, *(weight.grad for weight in layer.parameters())]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3, 7), (2, 3, 7), (1, 7), (2, 1, 3, 7)])
def test_outputs_and_gradients_are_torchs(shape: tuple[int, ...], bias: bool) -> None:
    plain, changed = layers(bias)
    inputs = torch.randn(shape)
    for expected, found in zip(results(plain, inputs), results(changed, inputs), strict=True):
        torch.testing.assert_close(found, expected)
    assert type(changed) is not torch.nn.Linear


def test_inputs_that_lie_apart_in_memory() -> None:
    plain, changed = layers(bias=True)
    inputs = torch.randn(7, 6).t()
    for expected, found in zip(results(plain, inputs), results(changed, inputs), strict=True):
        torch.testing.assert_close(found, expected)


def test_what_does_not_learn_gets_no_gradient() -> None:
    _, changed = layers(bias=True)
    assert results(changed, torch.randn(3, 7), inputs_learn=False)[1] is None
    changed.weight.requires_grad_(False)
    changed.weight.grad = None
    _, of_inputs, of_weight, of_bias = results(changed, torch.randn(3, 7))
    assert of_weight is None
    assert of_inputs is not None
    assert of_bias is not None
    with torch.no_grad():
        assert not changed(torch.randn(3, 7)).requires_grad


def test_other_precisions_go_the_usual_way() -> None:
    plain, changed = layers(bias=True)
    inputs = torch.randn(3, 7)
    with torch.autocast("cpu", torch.bfloat16):
        assert changed(inputs).dtype == torch.bfloat16
    torch.testing.assert_close(changed.double()(inputs.double()), plain.double()(inputs.double()))


def test_only_plain_linear_layers_change_and_names_stay() -> None:
    class Own(torch.nn.Linear):
        pass

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), Own(3, 3))
    names = list(model.state_dict())
    use_onednn(model)
    assert isinstance(model[0], torch.nn.Linear)
    assert type(model[0]) is not torch.nn.Linear
    assert type(model[1]) is Own
    assert list(model.state_dict()) == names


def test_a_copy_computes_with_its_own_weights() -> None:
    _, changed = layers(bias=True)
    copied, inputs = copy.deepcopy(changed), torch.randn(3, 7)
    before = changed(inputs)
    copied.weight.data.zero_()
    assert torch.equal(changed(inputs), before)
    torch.testing.assert_close(copied(inputs), copied.bias.expand(3, 5))
