"""The server's side of secure aggregation: from masked updates and weights, with the keeper's help, to their mean."""

from collections.abc import Callable, Sequence

import numpy as np

from fairlag.core.vector import Vector
from fairlag.errors import KeeperError
from fairlag.privacy.fixed import Words, mean, parts, weighted_sum
from fairlag.privacy.secure.client import Masked, mask_seed
from fairlag.privacy.secure.stream import add_blur
from fairlag.privacy.secure.wire import read_reply, request

Ask = Callable[[bytes], bytes]
"""Sends a request to the keeper and returns its reply: `Keeper.answer` of this process, or `KeeperLink.ask`."""


def mean_of(run: str, updates: Sequence[Masked], weights: Sequence[int], ask: Ask) -> Vector:
    """The weighted mean Σ a_j Δ_j / 2^24 of masked updates, for whole weights (`fixed.whole_weights`).

    Raises RefusedError if the keeper refuses (`update` is the place of the update that is the reason, if one is), and
    KeeperError if it does not answer. Each coordinate differs from the exact mean by at most 2^−30, and by rounding to
    float32: quantising adds at most 2^−31 (for coordinates up to ±256), the keeper's blur at most 2^−31.
    """
    size = _common_size(updates)
    reply = ask(request(run, size, [each.sealed for each in updates], weights))
    masks = np.frombuffer(read_reply(reply, size), "<u8")
    total = weighted_sum((each.vector for each in updates), weights, size)
    for part in parts(size):
        total[part] -= masks[part]
    return mean(total)


def plain_mean(quantised: Sequence[Words], weights: Sequence[int], roots: Sequence[bytes], secret: bytes) -> Vector:
    """The mean that `mean_of` returns for the same roots and keeper's secret, bit for bit, without masks or seals."""
    size = len(quantised[0])
    blur = np.zeros(size, np.uint64)
    add_blur(blur, secret, [mask_seed(root) for root in roots], weights)
    return mean(weighted_sum(quantised, weights, size) - blur)


def _common_size(updates: Sequence[Masked]) -> int:
    sizes = {each.vector.size for each in updates}
    if len(sizes) != 1:
        raise KeeperError(f"masked updates have {sorted(sizes)} coordinates, they must have the same number")
    return sizes.pop()
