"""What attackers send, against the formulas, and which texts are refused."""

import numpy as np
import pytest

from fairlag.errors import InputError
from fairlag.learn.behave import BEHAVIOURS, Known, known, parse


def test_a_lie_is_the_mean_minus_z_deviations_of_its_window() -> None:
    honest = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
    sent = parse("lie(1.5, window=12)").sent(known(update=[0.0] * 5)._replace(honest=list(honest)))
    by_hand = [
        sum(column) / 12 - 1.5 * (sum((x - sum(column) / 12) ** 2 for x in column) / 12) ** 0.5
        for column in honest.astype(float).T.tolist()
    ]
    assert sent == pytest.approx(by_hand, rel=1e-6)


def test_a_lie_without_deviations_is_the_mean() -> None:
    assert parse("lie(0)").sent(known(honest=[[1], [3], [8]])).tolist() == [4.0]


def test_before_two_honest_updates_a_liar_sends_its_own() -> None:
    assert parse("lie(9)").sent(known(update=[7], honest=[[1]])).tolist() == [7.0]


def test_noise_is_drawn_by_its_key_and_has_the_asked_deviation() -> None:
    still = Known(np.zeros(40_000, np.float32), np.zeros(0, np.float32), None, (), key=3)
    first, again, other = (parse("noise(0.5)").sent(still._replace(key=key)) for key in (3, 3, 4))
    assert first.tobytes() == again.tobytes() != other.tobytes()
    assert (first.mean(), first.std()) == (pytest.approx(0, abs=0.01), pytest.approx(0.5, rel=0.02))


def test_a_sign_flip_is_a_negative_scale() -> None:
    honest = known(update=[1.5, -2])
    assert parse("sign_flip(10)").sent(honest).tolist() == parse("scale(-10)").sent(honest).tolist() == [-15.0, 20.0]


def test_a_free_rider_has_no_last_step_in_its_first_task() -> None:
    assert parse("free_ride(last_step)").sent(known(update=[7], received=[5])).tolist() == [0.0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sign_flop", "there is no behaviour 'sign_flop': did you mean 'sign_flip'?"),
        ("sign_flip(0)", "factor of sign_flip is 0, but must be a finite number above 0"),
        ("scale(inf)", "factor of scale is inf, but must be a finite number"),
        ("scale", r"scale does not fit (missing a required argument: 'factor'); write scale(factor)"),
        ("noise(-1)", "deviation of noise is -1, but must be a finite number of at least 0"),
        ("lie(1, window=1)", "window of lie is 1, but must be a whole number of at least 2"),
        ("free_ride(apples)", "free_ride sends 'apples', but must send zeros or last_step"),
        ("7", "the behaviour is '7', but must be a call such as sign_flip(10)"),
    ],
)
def test_what_cannot_be_a_behaviour_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse(text)
    assert str(refusal.value) == sentence


def test_only_label_flip_changes_the_labels() -> None:
    made = {
        name: parse({"scale": "scale(1)", "noise": "noise(1)", "lie": "lie(1)"}.get(name, name)) for name in BEHAVIOURS
    }
    assert [name for name, each in made.items() if each.flips_labels] == ["label_flip"]
