"""The models: their layers and sizes as published, first weights by the seed, and what is refused."""

import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fairlag.errors import InputError
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.flat import Flat
from fairlag.learn.local import Recipe
from fairlag.learn.models import MODELS, MaxPool2x2, build

Layer = tuple[object, ...]


def block(few: int, many: int, groups: int, dropout: float) -> list[Layer]:
    """Two convolutions of 3×3, each followed by ReLU and then GroupNorm; a pool, and dropout of whole channels."""
    first: list[Layer] = [("Conv2d", few, many, (3, 3), (1, 1), (1, 1)), ("ReLU",), ("GroupNorm", groups, many)]
    second: list[Layer] = [("Conv2d", many, many, (3, 3), (1, 1), (1, 1)), ("ReLU",), ("GroupNorm", groups, many)]
    return [*first, *second, ("MaxPool2x2",), ("Dropout2d", dropout)]


def head(width: int) -> list[Layer]:
    normalised: list[Layer] = [("Flatten", 1, -1), ("Linear", width, 128), ("ReLU",), ("GroupNorm", 32, 128)]
    return [*normalised, ("Dropout", 0.5), ("Linear", 128, 10)]


TOLD = {
    nn.Conv2d: ("in_channels", "out_channels", "kernel_size", "stride", "padding"),
    nn.ReLU: (),
    nn.GroupNorm: ("num_groups", "num_channels"),
    MaxPool2x2: (),
    nn.Dropout2d: ("p",),
    nn.Dropout: ("p",),
    nn.Flatten: ("start_dim", "end_dim"),
    nn.Linear: ("in_features", "out_features"),
}
"""What makes a layer of each kind."""


def built(
    use: Any, shape: tuple[int, ...] = (1, 8, 8), classes: int = 10, seed: int = 0, **parameters: Any
) -> nn.Module:
    return Blueprint(use, parameters, Recipe(steps=1), shape, classes, 1.0, 0.0).build(seed)


def layers(model: nn.Module) -> list[Layer]:
    return [(type(layer).__name__, *(getattr(layer, name) for name in TOLD[type(layer)])) for layer in model.children()]


def test_the_cnn_of_fashion_mnist() -> None:
    model = built("fashion_cnn", (1, 28, 28))
    assert layers(model) == [*block(1, 32, 8, 0.3), *block(32, 64, 16, 0.5), *head(64 * 7 * 7)]
    assert Flat(model).trained == Flat(model).layout.size == 468_458


def test_the_cnn_of_cifar10() -> None:
    model = built("cifar_cnn", (3, 32, 32))
    blocks = [*block(3, 32, 8, 0.3), *block(32, 64, 16, 0.5), *block(64, 128, 32, 0.5)]
    assert layers(model) == [*blocks, *head(128 * 4 * 4)]
    wide = [3, 32, 32, 64, 64, 128, 128]
    convolutions = sum(9 * few * many + many for few, many in pairwise(wide))
    norms = 2 * (2 * 32 + 2 * 64 + 2 * 128 + 128)
    assert Flat(model).trained == convolutions + norms + 2048 * 128 + 128 + 128 * 10 + 10 == 551_722


def test_the_small_models() -> None:
    assert Flat(built("logistic")).trained == 64 * 10 + 10
    assert layers(built("mlp")) == [("Flatten", 1, -1), ("Linear", 64, 64), ("ReLU",), ("Linear", 64, 10)]
    assert Flat(built("mlp", (7,), 3, hidden=5, layers=2)).trained == 7 * 5 + 5 + 5 * 5 + 5 + 5 * 3 + 3


VALUES = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, float("nan"), float("inf"), float("-inf")])
"""So few that most windows have several greatest values."""


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(1, 1, 2, 2), (3, 17, 5, 9), (2, 32, 28, 28), (2, 64, 14, 14), (1, 128, 8, 8)]),
    st.sampled_from([2, 5, len(VALUES)]),
    st.integers(0, 2**31),
)
def test_the_pool_is_that_of_pytorch_to_the_bit(shape: tuple[int, ...], kinds: int, seed: int) -> None:
    torch.manual_seed(seed)
    images, found = VALUES[torch.randint(0, kinds, shape)], []
    pull = VALUES[torch.randint(0, 5, (*shape[:2], shape[2] // 2, shape[3] // 2))]
    for pool in (nn.MaxPool2d(2), MaxPool2x2()):
        seen = images.clone().requires_grad_()
        values = pool(seen)
        values.backward(pull)
        assert seen.grad is not None
        for each in (values.detach(), seen.grad):
            found.append((each.stride(), each.numpy().tobytes()))
    assert found[:2] == found[2:]


@pytest.mark.parametrize(
    ("use", "shape", "parameters", "words"),
    [
        ("fashion_cnn", (64,), {}, r"at least 4×4 pixels, the examples have shape \(64,\)"),
        ("fashion_cnn", (1, 28, 3), {}, r"at least 4×4 pixels, the examples have shape \(1, 28, 3\)"),
        ("cifar_cnn", (3, 7, 32), {}, r"at least 8×8 pixels, the examples have shape \(3, 7, 32\)"),
        ("mlp", (64,), {"hidden": 0}, r"hidden of the mlp .* is 0, but must be a whole number of at least 1"),
        ("mlp", (64,), {"hidden": [8]}, r"every hidden layer\) is \[8\], but must be a whole number of at least 1"),
        ("mlp", (64,), {"hidden": 8.5}, r"is 8\.5, but must be a whole number"),
        ("mlp", (64,), {"layers": 0}, "layers of the mlp is 0, but must be a whole number of at least 1"),
        ("mlp", (64,), {"layers": "two"}, "layers of the mlp is 'two', but must be a whole number"),
        ("mlp", (64,), {"hiden": 5}, r"the model mlp has no parameter 'hiden': did you mean 'hidden'\?"),
        ("fashion-cnn", (64,), {}, "^unknown model 'fashion-cnn': did you mean 'fashion_cnn'\\?$"),
        ("zzz", (64,), {}, "choose from cifar_cnn, fashion_cnn, logistic, lstm, mlp, module:function, transformer"),
    ],
)
def test_what_cannot_be_built_is_refused(use: str, shape: tuple[int, ...], parameters: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        built(use, shape, **parameters)


def test_the_smallest_images_that_a_cnn_takes() -> None:
    assert Flat(built("fashion_cnn", (1, 4, 4))).trained == 468_458 - (49 - 1) * 64 * 128
    assert built("cifar_cnn", (1, 8, 8), classes=3)(torch.zeros(5, 1, 8, 8)).shape == (5, 3)


OWN = """
from torch import nn
def knowing(shape, classes, width=2):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], width), nn.Linear(width, classes))
def fixed():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
def text(classes):
    return "a model"
def pair():
    class Pair(nn.Linear):
        def forward(self, inputs):
            return inputs, inputs
    return Pair(1, 1)
def losing():
    class Losing(nn.Linear):
        def loss(self, inputs, labels):
            return ((self(inputs)[:, 0] - labels) ** 2).mean()
    return Losing(64, 10)
def broken(shape):
    raise KeyError("no weights")
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own_models.py").write_text(OWN)
    return tmp_path


@pytest.mark.parametrize(
    ("use", "parameters", "size"), [("knowing", {}, 160), ("knowing", {"width": 3}, 235), ("fixed", {}, 650)]
)
def test_a_users_own_model(own: Path, use: str, parameters: dict[str, object], size: int) -> None:
    model = build(f"own_models:{use}", parameters, shape=(1, 8, 8), classes=10, seed=0, folder=own)
    assert Flat(model).trained == size


@pytest.mark.parametrize(
    ("use", "classes", "words"),
    [
        ("text", 10, "the model 'own_models:text' returned str, it must return an nn.Module"),
        (
            "fixed",
            3,
            r"'own_models:fixed' returns \(2, 10\) for 2 examples, it must be \(2, 3\): one number per label",
        ),
        ("pair", 10, r"returns tuple for 2 examples, it must be \(2, 10\)"),
        ("broken", 10, r"the model own_models:broken raised KeyError: 'no weights' \(own_models.py, line 20\)"),
        (
            "losing",
            10,
            "'own_models:losing' has a `loss` of its own, which is never called: training minimises the loss of the",
        ),
        ("missing", 10, "module 'own_models' has no function 'missing'"),
    ],
)
def test_a_users_own_model_that_does_not_fit(own: Path, use: str, classes: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Blueprint(f"own_models:{use}", {}, Recipe(steps=1), (1, 8, 8), classes, 1.0, 0.0, folder=own).build(0)


def test_examples_of_a_shape_that_a_model_cannot_take(own: Path) -> None:
    with pytest.raises(
        InputError, match=r"'own_models:fixed' cannot take examples of shape \(1, 5, 5\): RuntimeError: mat1 and mat2"
    ):
        build("own_models:fixed", {}, shape=(1, 5, 5), classes=10, seed=0, folder=own)


def test_a_function_may_stand_for_its_name() -> None:
    def one_layer(classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))

    def no_layer() -> nn.Module:
        return nn.Flatten()

    assert Flat(built(one_layer)).trained == 650
    with pytest.raises(InputError, match=r"the model 'no_layer' returns \(2, 64\) for 2 examples"):
        built(no_layer)


SEQUENCES = ("lstm", "transformer")
IMAGES = [name for name in MODELS if name not in SEQUENCES]


@pytest.mark.parametrize("use", IMAGES)
def test_first_weights_are_a_function_of_the_seed(use: str) -> None:
    def weights(seed: int) -> bytes:
        return Flat(built(use, seed=seed)).parameters.tobytes()

    same = weights(3)
    torch.rand(5)
    assert weights(3) == same
    assert weights(4) != same


def lazy(classes: int) -> nn.Module:
    """Draws its first weights when it sees its first example, and more numbers at each."""
    with warnings.catch_warnings(action="ignore"):  # torch says that lazy layers are new
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes), nn.RReLU())


class Noisy(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs.flatten(1)) + torch.rand(1)


@pytest.mark.parametrize("use", [*IMAGES, lazy, lambda: Noisy(64, 10)])
def test_building_leaves_the_global_generator_alone(use: Any) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    built(use)
    assert torch.equal(torch.rand(3), expected)


def test_weights_drawn_at_the_first_example_are_a_function_of_the_seed_too() -> None:
    vectors = [Flat(built(lazy, seed=seed)).parameters.tobytes() for seed in (3, 3, 4)]
    assert vectors[0] == vectors[1] != vectors[2]


def test_a_model_is_handed_over_in_the_mode_in_which_it_was_made() -> None:
    assert built("fashion_cnn").training
    assert not built(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval()).training
