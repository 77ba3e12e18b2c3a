"""Availability: exact periods, the promised fraction of time, and one sentence for every bad input."""

import math
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.core import seeds
from fairlag.errors import InputError
from fairlag.fleet.availability import Alternating, Always, Availability, Daily, Period, between, parse
from fairlag.fleet.delay import Constant, Delay, Exponential, Uniform

HOUR = 3600.0
DAY = 24 * HOUR
TEXTS = [
    "always",
    "alternating(exponential(600), exponential(300))",
    "alternating(uniform(1, 2), lognormal(5, 1))",
    "alternating(constant(60), constant(30))",
    "daily(8, 20)",
    "daily(22, 6)",
    "daily(22.5, 6, 3)",
    "daily(0, 1, 12)",
    "daily(24, 12)",
    "daily(0, 24)",
]

streams = st.integers(0, 2**64 - 1)


def first(text: str, count: int, stream: int = 0) -> list[Period]:
    """The first periods of a client."""
    return list(islice(parse(text).periods(stream), count))


def test_always() -> None:
    assert first("always", 9) == first("daily(0, 24, 2)", 9) == [(0, math.inf)]


def test_daily() -> None:
    assert first("daily(8, 20)", 2) == [(8 * HOUR, 20 * HOUR), (32 * HOUR, 44 * HOUR)]


def test_daily_across_midnight() -> None:
    assert first("daily(22, 6)", 3) == [(0, 6 * HOUR), (22 * HOUR, 30 * HOUR), (46 * HOUR, 54 * HOUR)]


def test_daily_until_midnight() -> None:
    assert first("daily(22, 24)", 2) == first("daily(22, 0)", 2) == [(22 * HOUR, DAY), (46 * HOUR, 48 * HOUR)]
    assert first("daily(24, 6)", 2) == first("daily(0, 6)", 2) == [(0, 6 * HOUR), (DAY, 30 * HOUR)]


@given(stream=streams)
def test_jitter_shifts_all_days_of_a_client_alike(stream: int) -> None:
    shift = 3 * (2 * seeds.uniform(stream, 0) - 1) * HOUR
    expected = [8 * HOUR + shift, 20 * HOUR + shift, 32 * HOUR + shift, 44 * HOUR + shift]
    assert [time for period in first("daily(8, 20, 3)", 2, stream) for time in period] == pytest.approx(expected)


def test_jitter_differs_between_clients() -> None:
    starts = [first("daily(12, 13, jitter=2)", 1, seeds.subkey(7, client))[0][0] / HOUR for client in range(2000)]
    assert 10 <= min(starts) < 10.02 and 13.98 < max(starts) <= 14
    assert sum(starts) / len(starts) == pytest.approx(12, abs=0.1)


@given(stream=streams)
def test_alternating_begins_on_or_off(stream: int) -> None:
    begins_on = seeds.uniform(stream, 0) < 2 / 3
    expected = [(0, 60), (90, 150)] if begins_on else [(30, 90), (120, 180)]
    assert first("alternating(60, 30)", 2, stream) == expected


def test_alternating_draws_its_lengths_in_order() -> None:
    on: Delay = Uniform(1, 2)
    off: Delay = Exponential(5)
    stream = next(stream for stream in range(99) if seeds.uniform(stream, 0) < Alternating(on, off).duty)
    lengths = [delay.quantile(seeds.uniform(stream, n)) for n, delay in enumerate((on, off, on), start=1)]
    times = [0.0, lengths[0], lengths[0] + lengths[1], lengths[0] + lengths[1] + lengths[2]]
    assert list(islice(Alternating(on, off).periods(stream), 2)) == [(times[0], times[1]), (times[2], times[3])]


def test_alternating_begins_on_with_the_long_run_probability() -> None:
    pattern = Alternating(Exponential(600), Exponential(300))
    begins = [next(pattern.periods(seeds.subkey(3, client)))[0] == 0 for client in range(10_000)]
    assert sum(begins) / len(begins) == pytest.approx(2 / 3, abs=0.02)


def test_periods_of_length_zero_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "recorded.csv").write_text("0\n10\n")
    pattern = parse("alternating(trace('recorded.csv'), 5)", folder=tmp_path)
    assert all(start < end for start, end in islice(pattern.periods(0), 200))


@given(text=st.sampled_from(TEXTS), stream=streams)
def test_periods_are_disjoint_and_increase(text: str, stream: int) -> None:
    periods = first(text, 50, stream)
    assert periods[0][0] >= 0
    assert all(start < end for start, end in periods)
    assert all(end < start for (_, end), (start, _) in pairwise(periods))
    assert periods == first(text, 50, stream)


@pytest.mark.parametrize("text", TEXTS)
def test_duty_is_the_fraction_of_time_present(text: str) -> None:
    pattern = parse(text)
    cycle = pattern.on.mean + pattern.off.mean if isinstance(pattern, Alternating) else DAY
    horizon = 10_000 * cycle
    present = sum(end - start for start, end in between(pattern.periods(stream=5), 0, horizon))
    assert present / horizon == pytest.approx(pattern.duty, abs=0.01)


def test_duty_exactly() -> None:
    duties = [parse(text).duty for text in ("always", "alternating(60, 20)", "daily(8, 20)", "daily(22, 4)")]
    assert duties == [1.0, 0.75, 0.5, 0.25]


@pytest.mark.parametrize(
    ("join", "leave", "expected"),
    [
        (0, math.inf, [(0, 10), (20, 30), (40, 50)]),
        (5, 25, [(5, 10), (20, 25)]),
        (10, 40, [(20, 30)]),
        (12, 18, []),
        (22, 28, [(22, 28)]),
        (50, 60, []),
        (25, 25, []),
        (25, 5, []),
    ],
)
def test_between_clips_exactly(join: float, leave: float, expected: list[Period]) -> None:
    assert list(between([(0, 10), (20, 30), (40, 50)], join, leave)) == expected


def test_between_stops_asking_at_the_end() -> None:
    assert list(between(Alternating(Constant(1), Constant(1)).periods(0), 0, 0)) == []
    assert list(between(Always().periods(0), 3, 8)) == [(3, 8)]


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_canonical(text: str) -> None:
    assert str(parse(text)) == text


@given(hours=st.tuples(st.floats(0, 24), st.floats(0, 24), st.floats(0, 12)))
def test_text_reads_back(hours: tuple[float, float, float]) -> None:
    if (hours[1] - hours[0]) % 24:
        assert parse(str(Daily(*hours))) == Daily(*hours)


def test_ways_of_writing() -> None:
    assert parse("always()") == parse(Always()) == Always()
    assert parse("daily(end=20, start=8)") == Daily(8, 20)
    assert parse("alternating(60, off=exponential(30))") == Alternating(Constant(60), Exponential(30))


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        ("alway", ["'alway'", "did you mean 'always'?"]),
        ("uniform(1, 2)", ["'uniform'", "alternating, always, daily"]),
        ("alternating(always, 3)", ["no delay 'always'", "uniform"]),
        ("alternating(60)", ["alternating(60) does not fit", "write alternating(on, off)"]),
        ("alternating(-1, 3)", ["seconds of constant is -1", "at least 0"]),
        ("alternating(60, 0)", ["constant(0) has mean 0"]),
        ("daily(8)", ["daily(8) does not fit", "write daily(start, end, jitter=0.0)"]),
        ("daily(8, 25)", ["end of daily is 25", "from 0 to 24"]),
        ("daily(-1, 20)", ["start of daily is -1", "from 0 to 24"]),
        ("daily(8, 20, 13)", ["jitter of daily is 13", "from 0 to 12"]),
        ("daily(8, 8)", ["daily(8, 8)", "same hour", "always"]),
        ("daily(24, 0)", ["daily(24, 0)", "same hour"]),
        ("daily(8, noon)", ["no delay 'noon'"]),
        ("daily(8, nan)", ["end of daily is nan"]),
        ("daily(8,", ["'daily(8,'", "write for example daily(8, 20)"]),
        ("5", ["'5'", "write for example daily(8, 20)"]),
        (5, ["5", "write for example daily(8, 20)"]),
        ("", ["''", "write for example daily(8, 20)"]),
    ],
)
def test_bad_input_is_one_sentence_with_the_value(written: str | Availability, parts: list[str]) -> None:
    with pytest.raises(InputError) as refusal:
        parse(written)
    sentence = str(refusal.value)
    assert "\n" not in sentence and ". " not in sentence
    assert [part for part in parts if part not in sentence] == []
