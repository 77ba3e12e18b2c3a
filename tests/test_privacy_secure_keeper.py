"""The keeper in memory: masked sums equal plain sums to the bit, and every rule refuses without using up a seed."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fairlag.core.vector import Vector
from fairlag.errors import InputError, KeeperError, RefusedError
from fairlag.privacy.fixed import WHOLE, quantise, whole_weights
from fairlag.privacy.secure.client import Masked, mask, mask_seed
from fairlag.privacy.secure.keeper import Keeper, Policy
from fairlag.privacy.secure.seal import Origin, seal
from fairlag.privacy.secure.server import mean_of, plain_mean
from fairlag.privacy.secure.stream import add_blur
from fairlag.privacy.secure.used import UsedInMemory
from fairlag.privacy.secure.wire import read_reply, request
from tests.support.secure import BOUND, CLIENTS, KEEPER, LEAST, PUBLIC, RUN, SECRET, SIGNERS, SIZE, keeper, updates

EVEN = whole_weights([1, 1, 1])
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


def test_weights_that_differ_by_one_unit_do_not_reveal_a_single_update() -> None:
    """Without blur, 2^23 + 1 and 2^23 − 1 would give away q_1 − q_2: the low bits of the exact sum."""
    pair, least = [WHOLE // 2 + 1, WHOLE // 2 - 1], 2
    vectors = [np.full(SIZE, value, np.float32) for value in (3e-4, -1e-4)]
    first, second = (int(quantise(each).view(np.int64)[0]) for each in vectors)

    def low_bits(total: int) -> int:
        return (total + WHOLE // 4) % (WHOLE // 2) - WHOLE // 4

    exact = pair[0] * first + pair[1] * second
    assert low_bits(exact) == first - second  # the attack works on an exact sum
    masked = [mask(each, Origin(RUN, place, 0), PUBLIC, SIGNERS[place]) for place, each in enumerate(vectors)]
    lenient = Keeper(Policy(RUN, SIZE, least, BOUND, CLIENTS), KEEPER, UsedInMemory(), SECRET)
    masks = np.frombuffer(read_reply(lenient.answer(asked(masked, pair)), SIZE), "<u8")
    got = [int(word) for word in (masked[0].vector * pair[0] + masked[1].vector * pair[1] - masks).view(np.int64)]
    assert all(abs(each - exact) <= WHOLE // 2 for each in got)
    assert len({low_bits(each) for each in got}) == SIZE  # the same update in each coordinate, different low bits


def asked(masked: list[Masked], weights: list[int] = EVEN, run: str = RUN, size: int = SIZE) -> bytes:
    return request(run, size, [each.sealed for each in masked], weights)


def forged(**changes: object) -> Callable[[list[Masked]], bytes]:
    """A request whose first seal was changed after it was signed."""

    def changed(masked: list[Masked]) -> bytes:
        first = Masked(masked[0].vector, replace(masked[0].sealed, **changes))  # type: ignore[arg-type]
        return asked([first, *masked[1:]])

    return changed


def stranger(masked: list[Masked]) -> bytes:
    new = mask(np.zeros(SIZE, np.float32), Origin(RUN, 0, 0), PUBLIC, Ed25519PrivateKey.from_private_bytes(b"x" * 32))
    return asked([new, *masked[1:]])


def boxed_for_another_task(masked: list[Masked]) -> bytes:
    """A client signs a seal for task 9 around a box that was made for task 0: only opening it can tell."""
    made = masked[0].sealed
    moved = replace(made, task=9)
    signature = SIGNERS[0].sign(moved.said(RUN, PUBLIC))
    return asked([Masked(masked[0].vector, replace(moved, signature=signature)), *masked[1:]])


def low_order(masked: list[Masked]) -> bytes:
    """A client sends a public key of low order, with which every X25519 secret is 0."""
    made = replace(masked[0].sealed, ephemeral=bytes(32))
    signature = SIGNERS[0].sign(made.said(RUN, PUBLIC))
    return asked([Masked(masked[0].vector, replace(made, signature=signature)), *masked[1:]])


REFUSED: dict[str, tuple[Callable[[list[Masked]], bytes], str]] = {
    "no client": (lambda masked: asked([], []), "the weights add up to 0, they must add up to 16777216"),
    "few clients": (lambda m: asked(m[:2], whole_weights([1, 1])), "2 clients have a positive weight, .* at least 3"),
    "weight 0": (lambda m: asked(m, whole_weights([1, 1, 0])), "2 clients have a positive weight"),
    "one client twice": (
        lambda m: asked([m[0], *updates(1, 7), m[1]], EVEN),
        "2 clients have a positive weight",
    ),
    "above the bound": (
        lambda m: asked(m, whole_weights([0.61, 0.2, 0.19])),
        "one client holds 0.6100 of the weight, it may hold at most 0.6",
    ),
    "above the bound together": (
        lambda m: asked([*m, *updates(1, 7)], whole_weights([0.31, 0.3, 0.09, 0.3])),
        "one client holds 0.6100 of the weight",
    ),
    "negative": (lambda m: asked(m, [WHOLE, 1, -1]), "a weight is -1, it must be at least 0"),
    "too much": (lambda m: asked(m, [1 + EVEN[0], *EVEN[1:]]), "the weights add up to 16777217"),
    "overflow": (lambda m: asked([*m, *m], [2**63 - 1] * 2 + [2 + WHOLE, 0, 0, 0]), "the weights add up to 18446744"),
    "another run": (lambda m: asked(m, run="cifar"), "this keeper is for the run 'digits', not for 'cifar'"),
    "sealed for another run": (
        lambda m: asked([*updates(1, run="cifar"), *m[1:]]),
        "update 0 is not signed by its client for this run, task and version",
    ),
    "size": (lambda m: asked(m, size=SIZE + 1), "the model has 5 parameters, not 6"),
    "seed twice": (
        lambda m: asked([*m, m[2]], [EVEN[0], EVEN[1], 1, EVEN[2] - 1]),
        "the seed of update 3 was used before",
    ),
    "another version": (forged(version=9), "update 0 is not signed by its client"),
    "another client": (forged(client=CLIENTS[4]), "update 0 is not signed by its client"),
    "stranger": (stranger, "update 0 is from a client that is not on the list"),
    "another box": (
        boxed_for_another_task,
        "the seal of update 0 does not open for this run, task, version and client",
    ),
    "low order": (low_order, "the seal of update 0 does not open"),
    "empty": (lambda m: b"", "the request has 0 bytes, it must have at least 21"),
    "cut": (lambda m: asked(m)[:-1], "the request has 626 bytes, 3 updates need 627"),
    "longer": (lambda m: asked(m) + b"!", "the request has 628 bytes"),
    "magic": (lambda m: b"x" + asked(m)[1:], "the request does not begin with 'fairlag1'"),
    "count": (lambda m: asked(m)[:16] + b"\xff" * 4 + asked(m)[20:], "4,294,967,295 updates, .* at most 65,536"),
    "no run": (lambda m: asked([], [], run=""), "the request names no run"),
    "not text": (lambda m: asked(m).replace(b"digits", b"digit\xff", 1), "the name of the run is not UTF-8"),
}


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
