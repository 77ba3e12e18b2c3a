"""The keeper in memory: masked sums equal plain sums to the bit, and every rule refuses without using up a seed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from fairlag.core.vector import Vector
from fairlag.errors import InputError, KeeperError, RefusedError
from fairlag.privacy.fixed import WHOLE, quantise, weighted_sum, whole_weights
from fairlag.privacy.secure.client import Masked, mask, mask_seed
from fairlag.privacy.secure.keeper import Keeper, Policy
from fairlag.privacy.secure.seal import Origin, seal
from fairlag.privacy.secure.server import mean_of, plain_mean
from fairlag.privacy.secure.stream import add_blur
from fairlag.privacy.secure.used import UsedInMemory
from fairlag.privacy.secure.wire import read_reply, request
from tests.support.secure import (
    BOUND,
    CLIENTS,
    EVEN,
    KEEPER,
    LEAST,
    PUBLIC,
    REFUSED,
    RUN,
    SECRET,
    SIGNERS,
    SIZE,
    asked,
    keeper,
    low_order,
    stranger,
    updates,
)

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(arrays(np.float32, SIZE, elements=floats), min_size=3, max_size=6), st.data())
def test_a_masked_mean_is_the_plain_mean_of_the_quantised_updates_to_the_bit(
    vectors: list[Vector], data: st.DataObject
) -> None:
    count = len(vectors)
    # No share is above 3 / (3 + 2) = 0.6, the bound.
    weights = whole_weights(data.draw(st.lists(st.floats(1, 3), min_size=count, max_size=count)))
    roots = [data.draw(st.binary(min_size=31, max_size=31)) + bytes([place]) for place in range(count)]
    masked = [
        mask(vector, Origin(RUN, place, 0), PUBLIC, SIGNERS[place], roots[place])
        for place, vector in enumerate(vectors)
    ]
    quantised = [quantise(each) for each in vectors]
    found = mean_of(RUN, masked, weights, keeper().answer)
    assert found.tobytes() == plain_mean(quantised, weights, roots, SECRET).tobytes()
    # Python's integers, one coordinate at a time, as a second opinion; the blur is at most half a quantum of the mean.
    blur = np.zeros(SIZE, np.uint64)
    add_blur(blur, SECRET, [mask_seed(root) for root in roots], weights)
    for place in range(SIZE):
        noise = int(blur.view(np.int64)[place])
        exact = sum(a * int(q.view(np.int64)[place]) for a, q in zip(weights, quantised, strict=True)) - noise
        assert -WHOLE // 2 <= noise < WHOLE // 2
        assert found[place] == np.float32(exact * 2.0**-54)


def test_the_same_root_gives_the_same_bytes_and_another_hides_the_update() -> None:
    update = np.zeros(4096, np.float32)
    one, same, other = (mask(update, Origin(RUN, 0, 0), PUBLIC, SIGNERS[0], root * 32) for root in (b"1", b"1", b"2"))
    assert one.vector.tobytes() + bytes(one.sealed) == same.vector.tobytes() + bytes(same.sealed)
    assert not np.intersect1d(one.vector, other.vector).size
    once, again = (mask(update, Origin(RUN, 0, 0), PUBLIC, SIGNERS[0]).vector for _ in range(2))
    assert not np.intersect1d(once, again).size


def test_the_blur_is_uniform_over_a_quantum() -> None:
    blur = np.zeros(200_000, np.uint64)
    add_blur(blur, SECRET, [b"1" * 32], [WHOLE])
    values = blur.view(np.int64) / WHOLE
    assert -0.5 <= values.min() < -0.4999
    assert 0.4999 < values.max() < 0.5
    # The mean and variance of 200,000 uniform numbers: within five standard errors.
    assert abs(values.mean()) < 5 * np.sqrt(1 / 12 / values.size)
    assert abs(values.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / values.size)


@pytest.mark.parametrize(
    ("weights", "step", "revealed"),
    [
        # The exact sum is 2^23 (q_1 + q_2) + (q_1 − q_2), and 2796202 Σ q + 4 q_1.
        ([WHOLE // 2 + 1, WHOLE // 2 - 1], WHOLE // 2, [1, -1]),
        ([2796206, *[2796202] * 5], 2796202, [4, 0, 0, 0, 0, 0]),
    ],
)
def test_nearly_equal_weights_reveal_updates_in_an_exact_sum_and_not_in_the_blurred_one(
    weights: list[int], step: int, revealed: list[int]
) -> None:
    vectors = [np.full(SIZE, 1e-4 * (1 - place / 7), np.float32) for place in range(len(weights))]
    quanta = [int(quantise(each).view(np.int64)[0]) for each in vectors]

    def low_part(total: int) -> int:
        return (total + step // 2) % step - step // 2

    exact = sum(a * q for a, q in zip(weights, quanta, strict=True))
    assert low_part(exact) == sum(d * q for d, q in zip(revealed, quanta, strict=True))  # the attack works
    masked = [mask(each, Origin(RUN, place, 0), PUBLIC, SIGNERS[place]) for place, each in enumerate(vectors)]
    lenient = Keeper(Policy(RUN, SIZE, 2, BOUND, CLIENTS), KEEPER, UsedInMemory(), SECRET)
    masks = np.frombuffer(read_reply(lenient.answer(asked(masked, weights)), SIZE), "<u8")
    got = (weighted_sum((each.vector for each in masked), weights, SIZE) - masks).view(np.int64).tolist()
    assert all(abs(each - exact) <= WHOLE // 2 for each in got)
    assert len({low_part(each) for each in got}) == SIZE  # every coordinate is the same, but its low part is noise


def blurred(vectors: list[Vector], weights: list[int]) -> NDArray[np.int64]:
    """What a server gets of these updates, 2^24 times their mean."""
    size = vectors[0].size
    masked = [mask(each, Origin(RUN, place, 0), PUBLIC, SIGNERS[place]) for place, each in enumerate(vectors)]
    lenient = Keeper(Policy(RUN, size, 2, BOUND, CLIENTS), KEEPER, UsedInMemory(), SECRET)
    request_of = request(RUN, size, [each.sealed for each in masked], weights)
    masks = np.frombuffer(read_reply(lenient.answer(request_of), size), "<u8")
    total: NDArray[np.int64] = (weighted_sum((each.vector for each in masked), weights, size) - masks).view(np.int64)
    return total


def test_the_blur_does_not_hide_equal_coordinates_or_updates_that_the_server_knows() -> None:
    """The limits that docs/keeper.md states: a blur of one coordinate hides nothing that a thousand say together."""
    weights = [WHOLE // 2 + 1, WHOLE // 2 - 1]
    draws = np.random.default_rng(0).normal(0, 1e-3, (2, 1000)).astype(np.float32)
    quanta = [quantise(each).view(np.int64) for each in draws]
    got = blurred([*draws], weights)
    fits = [
        bool((abs(got - weights[0] * first - weights[1] * second) <= WHOLE // 2).all())
        for first, second in (quanta, quanta[::-1])
    ]
    assert fits == [True, False]  # whose update is whose
    got = blurred([np.full(2**17, each, np.float32) for each in (1e-3, 7e-4)], weights)
    total = (int(got.min()) + int(got.max())) // 2  # the middle of the blur
    low = (total + WHOLE // 4) % (WHOLE // 2) - WHOLE // 4
    assert low * 2.0**-30 == pytest.approx(3e-4, rel=0.01)  # the difference of the two updates


@pytest.mark.parametrize("name", REFUSED)
def test_the_keeper_refuses_says_why_and_uses_up_no_seed(name: str) -> None:
    make, reason = REFUSED[name]
    masked, here = updates(LEAST), keeper()
    with pytest.raises(RefusedError, match=f"^the keeper refused: .*{reason}"):
        read_reply(here.answer(make(masked)), SIZE)
    assert mean_of(RUN, masked, EVEN, here.answer) == pytest.approx(1.5, abs=2**-20)


def test_a_refusal_names_the_update_that_is_the_reason() -> None:
    masked = updates(LEAST)
    for make, place in ((stranger, 0), (low_order, 0), (lambda m: asked(m, run="cifar"), None)):
        with pytest.raises(RefusedError) as refused:
            read_reply(keeper().answer(make(masked)), SIZE)
        assert refused.value.update == place


def test_a_share_at_the_bound_is_answered_although_rounding_exceeds_it() -> None:
    weights = whole_weights([BOUND, 0.2, 0.2])
    assert weights[0] > BOUND * WHOLE
    assert mean_of(RUN, updates(3), weights, keeper().answer) == pytest.approx(0.6 * 0.5 + 0.2 * 4, abs=2**-20)
    with pytest.raises(RefusedError):
        mean_of(RUN, updates(3), [weights[0] + 1, weights[1] - 1, weights[2]], keeper().answer)


def test_an_answer_uses_up_every_seed_also_those_of_weight_0_and_also_after_saving() -> None:
    masked, first = updates(4), keeper()
    mean_of(RUN, masked, [*EVEN, 0], first.answer)
    used = UsedInMemory()
    assert isinstance(first.used, UsedInMemory)
    used.restore(first.used.state())
    for here in (first, keeper(used)):
        for place in range(4):
            others = updates(4, first=10)
            with pytest.raises(RefusedError, match=f"the seed of update {place} was used before") as refused:
                mean_of(RUN, [*others[:place], masked[place], *others[place + 1 :]], [*EVEN, 0], here.answer)
            assert refused.value.update == place


def test_a_seed_sealed_again_is_still_used_up() -> None:
    """A client that seals one seed twice, for two tasks, hands the server no second sum."""
    here, seed = keeper(), b"z" * 32
    twice = [
        Masked(np.zeros(SIZE, np.uint64), seal(seed, Origin(RUN, task, 0), PUBLIC, SIGNERS[0], bytes([task]) * 32))
        for task in (1, 2)
    ]
    mean_of(RUN, [twice[0], *updates(3)[1:]], EVEN, here.answer)
    with pytest.raises(RefusedError, match="the seed of update 0 was used before"):
        mean_of(RUN, [twice[1], *updates(3, 10)[1:]], EVEN, here.answer)


def test_a_malicious_client_can_move_the_mean_however_small_its_weight() -> None:
    """Not protected, and the documentation says so: a masked update is any number modulo 2^64."""
    weights = [1, WHOLE // 2 - 1, WHOLE // 2]
    honest = mean_of(RUN, updates(3), weights, keeper().answer)
    bad, *others = updates(3)
    spoilt = Masked(bad.vector + np.uint64(100 << 54), bad.sealed)
    moved = mean_of(RUN, [spoilt, *others], weights, keeper().answer)
    assert moved - honest == pytest.approx(100, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"least": 1}, "the least number of clients is 1, it must be at least 2"),
        ({"bound": 0.3}, "the bound on a client's share is 0.3, .* at least 0.333 and below 1"),
        ({"bound": 1.0}, "the bound on a client's share is 1.0"),
        ({"bound": float("nan")}, "the bound on a client's share is nan"),
        ({"size": 0}, "the number of parameters is 0, it must be at least 1"),
        ({"run": ""}, "the run is '', its name must have 1 to 255 bytes"),
    ],
)
def test_a_policy_that_protects_nobody_is_refused(changes: dict[str, float], reason: str) -> None:
    good = {"run": RUN, "size": SIZE, "least": LEAST, "bound": BOUND, "clients": CLIENTS}
    with pytest.raises(InputError, match=reason):
        Policy(**(good | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("reply", [b"", b"\x00", b"\x00" * 40, b"\x01\x00", b"\x02" * 41])
def test_a_reply_that_is_none_is_an_error(reply: bytes) -> None:
    with pytest.raises(KeeperError, match="which are no reply for 5 parameters"):
        read_reply(reply, SIZE)


@given(st.binary(max_size=700))
def test_random_bytes_are_refused(data: bytes) -> None:
    assert keeper().answer(data)[:1] == b"\x01"


@given(st.data())
def test_a_changed_request_is_refused(data: st.DataObject) -> None:
    """One byte differs: a signed one, one of the head, or one of a weight, so that the weights do not add up."""
    good = bytearray(asked(updates(LEAST)))
    place = data.draw(st.integers(0, len(good) - 1))
    good[place] ^= data.draw(st.integers(1, 255))
    assert keeper().answer(bytes(good))[:1] == b"\x01"
