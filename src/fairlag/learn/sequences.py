"""Models of sequences of tokens: at every position they predict the next token from those up to it."""

import torch
from torch import Tensor, nn

from fairlag.data.whole import whole
from fairlag.errors import InputError
from fairlag.learn.targets import Shape


def lstm(shape: Shape, classes: int, embedding: int = 32, hidden: int = 128, layers: int = 1) -> nn.Module:
    """A recurrent network for sequences of tokens: embedding, LSTM, linear."""
    _check(shape, "lstm", embedding=embedding, hidden=hidden, layers=layers)
    return _Recurrent(classes, embedding, hidden, layers)


def transformer(
    shape: Shape, classes: int, width: int = 64, heads: int = 4, layers: int = 2, dropout: float = 0.0
) -> nn.Module:
    """A causal transformer for sequences of tokens: learnt positions, then blocks of attention with LayerNorm first."""
    _check(shape, "transformer", width=width, heads=heads, layers=layers)
    if width % heads:
        raise InputError(f"the transformer has width {width} and {heads} heads, but heads must divide the width")
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise InputError(f"dropout of the transformer is {dropout!r}, but must be at least 0 and below 1")
    return _Causal(shape[0], classes, width, heads, layers, dropout)


class _Recurrent(nn.Module):
    def __init__(self, tokens: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        found: Tensor = self.head(states)
        return found


class _Causal(nn.Module):
    def __init__(self, length: int, tokens: int, width: int, heads: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))
        # One by one, because nn.TransformerEncoder copies its layer: all would begin with the same weights.
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, "gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.embedding(tokens) + self.positions
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        for block in self.blocks:
            states = block(states, src_mask=mask, is_causal=True)
        found: Tensor = self.head(self.norm(states))
        return found


def _check(shape: Shape, name: str, **sizes: object) -> None:
    if len(shape) != 1:
        raise InputError(f"the {name} needs sequences of tokens, the examples have shape {shape}")
    for key, size in sizes.items():
        whole(size, f"{key} of the {name}", 1)
