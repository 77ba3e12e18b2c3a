"""Models of sequences: their sizes, that no output looks ahead, and that they learn what only order can tell."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from fairlag.errors import InputError
from fairlag.learn.flat import Flat
from fairlag.learn.models import build

SIZES: dict[str, dict[str, Any]] = {
    "lstm": {"embedding": 6, "hidden": 12},
    "transformer": {"width": 12, "heads": 3, "layers": 2},
}


def made(name: str, length: int = 9, tokens: int = 7, seed: int = 0, **parameters: Any) -> torch.nn.Module:
    return build(name, parameters or SIZES[name], shape=(length,), classes=tokens, seed=seed, tokens=True)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("training", [True, False])
def test_a_later_token_changes_no_earlier_output(name: str, training: bool) -> None:
    model = made(name).train(training)
    tokens = torch.randint(0, 7, (4, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = model(tokens)
        for place in range(9):
            changed = tokens.clone()
            changed[:, place] = (changed[:, place] + 1) % 7
            after = model(changed)
            assert torch.allclose(after[:, :place], before[:, :place], rtol=0, atol=1e-6)
            assert (after[:, place:] != before[:, place:]).flatten(2).any(2).all()  # and every later one


@pytest.mark.parametrize("name", SIZES)
def test_first_weights_are_a_function_of_the_seed(name: str) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first, same, other = (Flat(made(name, seed=seed)).parameters.tobytes() for seed in (3, 3, 4))
    assert first == same != other
    assert torch.equal(torch.rand(3), expected)  # the global generator is left alone


def test_sizes() -> None:
    # Embedding; four gates, each from the input and the state, with two biases; linear.
    assert Flat(made("lstm")).trained == 7 * 6 + 4 * 12 * (6 + 12 + 2) + 12 * 7 + 7
    # Per block: attention (four square matrices), two layers of 4 · width, two norms.
    block = 4 * (12 * 12 + 12) + (12 * 48 + 48) + (48 * 12 + 12) + 2 * 24
    assert Flat(made("transformer")).trained == 7 * 12 + 9 * 12 + 2 * block + 24 + 12 * 7 + 7


def test_blocks_of_a_transformer_begin_with_different_weights() -> None:
    weights = dict(made("transformer").named_parameters())
    assert not torch.equal(weights["blocks.0.linear1.weight"], weights["blocks.1.linear1.weight"])


@pytest.mark.parametrize("name", SIZES)
def test_what_only_the_order_tells_is_learnt(name: str) -> None:
    """In 0 1 0 2 0 1 0 2 …, what follows 0 depends on what came before it: from one token alone, no better than ½."""
    model = made(name, length=8, tokens=3)
    rows = torch.tensor([[0, 1, 0, 2] * 3])[:, :9]
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        loss = functional.cross_entropy(model(rows[:, :-1])[:, 1:].flatten(0, 1), rows[:, 2:].flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert loss.item() < 0.1


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("lstm", {"hidden": 0}, "hidden of the lstm is 0, but must be a whole number of at least 1"),
        ("transformer", {"layers": 1.5}, "layers of the transformer is 1.5"),
        ("transformer", {"width": 10, "heads": 4}, "has width 10 and 4 heads, but heads must divide the width"),
        (
            "transformer",
            {"dropout": [0.1]},
            r"dropout of the transformer is \[0.1\], but must be",
        ),
        ("transformer", {"dropout": 1.0}, "dropout of the transformer is 1.0, but must be at least 0 and below 1"),
    ],
)
def test_what_is_refused(name: str, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        made(name, **parameters)
    with pytest.raises(InputError, match=r"needs sequences of tokens, the examples have shape \(1, 8, 8\)"):
        build(name, {}, shape=(1, 8, 8), classes=7, seed=0)
