"""The quicker max-pooling gives the values and gradients of PyTorch's, to the bit, whatever the images hold."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fairlag.learn.pooling import quicken

VALUES = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, float("nan"), float("inf"), float("-inf")])
"""So few that most windows have several greatest values."""

layers = st.builds(
    nn.MaxPool2d,
    kernel_size=st.sampled_from([2, 3, (2, 3), [2, 2]]),
    stride=st.sampled_from([None, 1, 2, (2, 1)]),
    padding=st.sampled_from([0, 1, [1, 0]]),
    dilation=st.sampled_from([1, 2]),
    ceil_mode=st.booleans(),
)


def both(layer: nn.MaxPool2d, images: Tensor) -> list[tuple[Tensor, Tensor | None]]:
    """Values and gradients of the layer as PyTorch has it, and quickened."""
    quick = deepcopy(layer)
    quicken(quick)
    found = []
    for each in (layer, quick):
        seen = images.clone().requires_grad_()
        values = each(seen)
        values.backward(torch.arange(values.numel(), dtype=torch.float32).reshape(values.shape))
        found.append((values.detach(), seen.grad))
    return found


def same(one: Tensor | None, other: Tensor | None) -> bool:
    assert one is not None and other is not None
    return one.stride() == other.stride() and one.numpy().tobytes() == other.numpy().tobytes()


@settings(max_examples=60, deadline=None)
@given(layers, st.integers(1, 3), st.sampled_from([1, 15, 16, 17, 40]), st.integers(5, 9), st.integers(5, 9), st.data())
def test_values_and_gradients_are_those_of_pytorch(
    layer: nn.MaxPool2d, count: int, channels: int, height: int, width: int, data: st.DataObject
) -> None:
    torch.manual_seed(data.draw(st.integers(0, 2**31)))
    chosen = torch.randint(0, data.draw(st.sampled_from([2, 5, len(VALUES)])), (count, channels, height, width))
    (values, gradients), (quick_values, quick_gradients) = both(layer, VALUES[chosen])
    assert same(values, quick_values)
    assert same(gradients, quick_gradients)


@pytest.mark.parametrize("shape", [(32, 32, 28, 28), (32, 64, 14, 14), (32, 32, 32, 32), (250, 128, 8, 8)])
def test_at_the_sizes_of_the_cnns(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    (values, gradients), (quick_values, quick_gradients) = both(nn.MaxPool2d(2), torch.randn(shape).relu())
    assert same(values, quick_values)
    assert same(gradients, quick_gradients)


def test_other_images_are_left_to_pytorch() -> None:
    layer = nn.Sequential(nn.MaxPool2d(2))
    images = torch.rand(3, 32, 8, 8)
    lined = images.contiguous(memory_format=torch.channels_last)
    expected = layer(images[0]), layer(lined)
    quicken(layer)
    assert same(layer(images[0]), expected[0])
    assert same(layer(lined), expected[1])


def test_without_gradients_and_with_second_ones() -> None:
    layer = nn.MaxPool2d(2)
    quicken(layer)
    images = torch.rand(2, 16, 4, 4, requires_grad=True)
    with torch.no_grad():
        assert not layer(images).requires_grad
    (first,) = torch.autograd.grad((layer(images) ** 2).sum(), images, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), images)
    assert torch.equal(second, 2.0 * (first.detach() != 0))


def test_layers_of_a_users_own_are_left_alone() -> None:
    class Own(nn.MaxPool2d):
        pass

    plain, own, telling = nn.MaxPool2d(2), Own(2), nn.MaxPool2d(2, return_indices=True)
    quicken(nn.ModuleList([plain, own, telling]))
    assert "forward" in vars(plain)
    assert "forward" not in vars(own) and "forward" not in vars(telling)
    before = vars(plain)["forward"]
    quicken(plain)
    assert vars(plain)["forward"] is before


def test_under_transformations_it_is_left_to_pytorch() -> None:
    layer = nn.MaxPool2d(2)
    images = torch.rand(3, 2, 16, 4, 4)
    slope = torch.func.vmap(torch.func.grad(lambda some: layer(some).square().sum()))
    expected = slope(images)
    quicken(layer)
    assert torch.equal(slope(images), expected)
