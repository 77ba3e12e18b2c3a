"""A model on one vector: views, buffers that travel and those that do not, and what is refused."""

import numpy as np
import pytest
import torch
from torch import nn

from fairlag.core.vector import Vector, published
from fairlag.errors import InputError
from fairlag.learn.flat import Flat


def written(flat: Flat, parameters: Vector) -> list[float]:
    out = np.empty_like(parameters)
    flat.write_update(parameters, out)
    values: list[float] = out.tolist()
    return values


def test_a_step_on_the_vector_is_a_step_of_the_model() -> None:
    layer = nn.Linear(2, 1)
    flat = Flat(layer)
    flat.load(published([1, 2, 3]))
    layer(torch.tensor([[5.0, 7.0]])).sum().backward()
    assert flat.gradient.tolist() == [5, 7, 1]
    flat.weights.sub_(flat.gradient)
    assert (layer.weight.tolist(), layer.bias.tolist()) == ([[-4, -5]], [2])
    assert written(flat, published([1, 2, 3])) == [-5, -7, -1]


def test_gradients_are_added_up_in_their_place() -> None:
    layer = nn.Linear(1, 1)
    flat = Flat(layer)
    for _ in range(2):
        layer(torch.tensor([[3.0]])).sum().backward()
    assert flat.gradient.tolist() == [6, 2]
    flat.gradient.zero_()
    assert layer.weight.grad is not None and layer.weight.grad.tolist() == [[0]]


def test_the_vector_begins_as_the_model_and_what_was_published_does_not_change() -> None:
    layer = nn.Linear(2, 1)
    weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()
    flat = Flat(layer)
    before = flat.parameters
    assert before.tolist() == [*weight.flatten().tolist(), *bias.tolist()]
    flat.vector.zero_()
    assert before[2] == bias.item()
    assert not before.flags.writeable


def test_float_buffers_travel_as_values_and_integer_buffers_keep_their_first_value() -> None:
    norm = nn.BatchNorm1d(2, momentum=0.5)
    flat = Flat(nn.Sequential(norm))
    assert flat.layout.names == ("0.weight", "0.bias", "0.running_mean", "0.running_var")
    assert (flat.trained, flat.layout.size, flat.layout.statistics) == (4, 8, 2)
    start = published([1, 1, 0, 0, 4, 4, 9, 9])
    flat.load(start)
    norm(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    assert written(flat, start) == [
        0,
        0,
        0,
        0,
        3,
        4,
        5.5,
        8.5,
    ]  # halfway from 4 and 9 to the means 2, 4 and variances 2, 8
    count = norm.get_buffer("num_batches_tracked")
    assert count.item() == 1
    flat.load(published([1, 1, 0, 0, 7, 7, 1, 1]))
    assert norm.running_mean is not None and norm.running_mean.tolist() == [7, 7]
    assert norm.get_buffer("num_batches_tracked") is count
    assert count.item() == 0


class Replacing(nn.Module):
    """Does not change its buffers, but puts others in their place."""

    mean: torch.Tensor
    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls = self.calls + 1
        self.mean = (self.mean + (self.weight * inputs).mean()) / 2
        return inputs * self.weight - self.mean


def test_a_buffer_that_is_replaced_travels_too_and_leaves_no_trace() -> None:
    model = Replacing()
    flat = Flat(model)
    for _ in range(2):
        flat.load(published([1, 0]))
        model(torch.tensor([4.0]))
        model(torch.tensor([4.0]))
        assert written(flat, published([1, 0])) == [0, 3]
        assert model.calls.item() == 2
    flat.load(published([1, 8]))
    assert (model.mean.tolist(), model.calls.item()) == ([8], 0)


def test_frozen_parameters_are_carried_but_have_no_gradient() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    model[0].requires_grad_(False)
    flat = Flat(model)
    assert flat.layout.names == ("1.weight", "1.bias", "0.weight", "0.bias")
    assert (flat.trained, flat.gradient.numel(), flat.layout.size, flat.layout.statistics) == (2, 2, 4, 0)
    flat.load(published([2, 3, 5, 7]))
    output = model(torch.tensor([[1.0]]))
    assert output.item() == 2 * (5 * 1 + 7) + 3
    output.backward()
    assert flat.gradient.tolist() == [12, 1]
    assert model[0].weight.grad is None


def test_tied_weights_stand_in_the_vector_once() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    model[1].weight = model[0].weight
    flat = Flat(model)
    assert flat.layout.names == ("0.weight",)
    flat.load(published([3]))
    output = model(torch.tensor([[1.0]]))
    assert output.item() == 9
    output.backward()
    assert flat.gradient.tolist() == [6]


def test_a_buffer_that_two_modules_share_stays_shared() -> None:
    one, other = nn.BatchNorm1d(1), nn.BatchNorm1d(1)
    other.running_mean = one.running_mean
    flat = Flat(nn.Sequential(one, other))
    flat.load(published(range(flat.layout.size)))
    place = flat.layout.names.index("0.running_mean")
    assert "1.running_mean" not in flat.layout.names
    assert one.running_mean is not None and other.running_mean is not None
    assert one.running_mean.tolist() == other.running_mean.tolist() == [place]


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16])
def test_only_float32_is_known(kind: torch.dtype) -> None:
    with pytest.raises(InputError, match=rf"'weight' of the model is {kind} on cpu, it must be float32 on the CPU"):
        Flat(nn.Linear(2, 1).to(kind))


def test_a_buffer_of_another_kind_is_refused_too() -> None:
    norm = nn.BatchNorm1d(2)
    norm.running_var = torch.ones(2, dtype=torch.float64)
    with pytest.raises(InputError, match=r"'running_var' of the model is torch.float64"):
        Flat(norm)


@pytest.mark.parametrize("model", [nn.Flatten(), nn.Linear(2, 1).requires_grad_(False)])
def test_a_model_with_nothing_to_train_is_refused(model: nn.Module) -> None:
    with pytest.raises(InputError, match="the model has no parameters to train"):
        Flat(model)
