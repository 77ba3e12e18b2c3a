"""Streams: exact numbers, growth that never goes back, the same answer in any order, and arrivals as the law says."""

import math
import pickle
import time as clock
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.core import seeds
from fairlag.data import stream
from fairlag.data.partition import Holding, Shares
from fairlag.data.partition import parse as partition
from fairlag.data.stream import Linear, Poisson, Stream, in_order_of_arrival, parse
from fairlag.errors import InputError

KEYS = [seeds.subkey(seeds.key(0, "stream"), client) for client in range(4000)]

shares_of_one = st.floats(0, 1)
growths = st.one_of(st.just(0.0), st.floats(0, 1e308), st.floats(0, 0.1))
streams = st.builds(Linear, shares_of_one, growths) | st.builds(Poisson, shares_of_one, growths)
totals = st.integers(1, 300)
times = st.floats(0, 1e12) | st.floats(0, 100)
keys = st.integers(0, 2**64 - 1)


# How much is there


@pytest.mark.parametrize(
    ("text", "total", "expected"),
    [
        ("linear(0.1, 0.01)", 100, {0: 10, 0.5: 10, 0.99: 10, 1: 11, 1.5: 11, 19: 29, 89: 99, 90: 100, 1e9: 100}),
        ("linear(0.1, 0.1)", 10, {0: 1, 1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 6: 7, 7: 8, 8: 9, 8.99: 9, 9: 10}),
        ("linear(0.29, 0)", 100, {0: 29, 1e300: 29}),
        ("linear(0, 0.001)", 7, {0: 1, 142: 1, 285: 1, 286: 2, 999: 6, 1000: 7}),
        ("linear(0, 1e308)", 7, {0: 1, 1: 7, 100: 7}),
        ("linear(1, 0.5)", 7, {0: 7, 3: 7}),
        ("linear(0, 0)", 1, {0: 1, 3: 1}),
        ("poisson(0.29, 0)", 100, {0: 29, 1e300: 29}),
        ("poisson(0, 1e308)", 7, {0: 1, 1: 7, 100: 7}),
        ("poisson(1, 0.5)", 7, {0: 7, 3: 7}),
        ("poisson(0, 1)", 1, {0: 1, 3: 1}),
    ],
)
def test_how_many_examples_are_there(text: str, total: int, expected: dict[float, int]) -> None:
    found = {time: parse(text).visible(total, time, KEYS[0]) for time in expected}
    assert found == expected


@given(st.integers(0, 100), st.integers(0, 1000), st.integers(1, 5000), st.integers(0, 10_000))
def test_a_whole_number_is_not_lost_to_rounding(percent: int, thousandths: int, total: int, tenths: int) -> None:
    exact = total * (Fraction(percent, 100) + Fraction(thousandths, 1000) * Fraction(tenths, 10))
    linear = Linear(percent / 100, thousandths / 1000)
    assert linear.visible(total, tenths / 10, key=0) == min(max(math.floor(exact), 1), total)
    first = min(max(total * percent // 100, 1), total)
    assert Poisson(percent / 100, 0.1).visible(total, 0.0, KEYS[0]) == first
    assert linear.at_start(np.array([total])).tolist() == [first]


def test_examples_come_when_the_draws_of_the_client_say() -> None:
    key, total, per_second, come = KEYS[3], 20, 0.005, 0.0
    poisson = Poisson(0.25, per_second)
    for ordinal in range(15):
        come += -math.log(seeds.uniform(key, ordinal)) / (total * per_second)
        assert poisson.visible(total, come * (1 - 1e-12), key) == 5 + ordinal
        assert poisson.visible(total, come * (1 + 1e-12), key) == 6 + ordinal
    assert poisson.visible(total, 1e12, key) == 20


@given(streams, totals, st.lists(times, min_size=2, max_size=10), keys)
def test_it_grows_within_its_bounds_and_never_goes_back(
    given_stream: Stream, total: int, at: list[float], key: int
) -> None:
    found = [given_stream.visible(total, time, key) for time in (0.0, *sorted(at))]
    assert found == sorted(found)
    assert found[0] >= 1 and found[-1] <= total
    assert all(type(each) is int for each in found)
    assert given_stream.at_start(np.array([total])).tolist() == [found[0]]


@given(streams, st.lists(st.tuples(totals, times, st.integers(0, 3)), max_size=30), st.randoms())
def test_the_order_of_asking_does_not_matter(
    given_stream: Stream, questions: list[tuple[int, float, int]], random: Random
) -> None:
    def ask(total: int, time: float, client: int) -> int:
        return given_stream.visible(total, time, KEYS[client])

    answers = {question: ask(*question) for question in sorted(questions)}
    again = questions * 2
    random.shuffle(again)
    stream._arrivals.cache_clear()
    assert all(ask(*question) == answers[question] for question in again)


def test_clients_differ_in_when_examples_come_but_not_in_how_many_they_begin_with() -> None:
    poisson = Poisson(0.1, 0.01)
    assert {poisson.visible(100, 0, key) for key in KEYS[:50]} == {10}
    assert len({poisson.visible(100, 30, key) for key in KEYS[:50]}) > 10
    assert {Linear(0.1, 0.01).visible(100, 30, key) for key in KEYS[:50]} == {40}


def test_arrivals_have_the_mean_and_the_variance_of_a_poisson_process() -> None:
    # Of 100 examples 20 are there, and 0.5 come a second; at 40 seconds 20 ± √20 of the 80 others have come.
    poisson = Poisson(0.2, 0.005)
    come = np.array([poisson.visible(100, 40, key) for key in KEYS]) - 20
    mean, clients = 20.0, len(KEYS)
    assert abs(come.mean() - mean) < 3 * math.sqrt(mean / clients)
    # The fourth central moment is 3 mean² + mean, so the variance of the sample's variance is (2 mean² + mean) / n.
    assert abs(come.var(ddof=1) - mean) < 3 * math.sqrt((2 * mean**2 + mean) / clients)


def test_numbers_that_come_in_disjoint_times_are_uncorrelated() -> None:
    poisson = Poisson(0.2, 0.005)
    found = np.array([[poisson.visible(100, time, key) for time in (0, 10, 20, 40)] for key in KEYS])
    correlations = np.corrcoef(np.diff(found, axis=1).T)[np.triu_indices(3, 1)]
    assert (np.abs(correlations) < 3.5 / math.sqrt(len(KEYS))).all()


def test_what_is_asked_often_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    uniforms = seeds.uniforms

    def counted(key: int, start: int, count: int) -> object:
        computed.append(count)
        return uniforms(key, start, count)

    monkeypatch.setattr(seeds, "uniforms", counted)
    stream._arrivals.cache_clear()
    for time in range(100):
        Poisson(0.1, 0.001).visible(1000, time, KEYS[0])
    assert computed == [900]
    for key in KEYS:
        Poisson(0.1, 0.001).visible(10, 1, key)
    assert stream._arrivals.cache_info().currsize < len(KEYS)


@pytest.mark.slow
def test_a_million_clients_begin_at_once() -> None:
    sizes = np.arange(1, 1_000_001)
    start = clock.perf_counter()
    found = parse("poisson(0.1, 0.01)").at_start(sizes)
    assert clock.perf_counter() - start < 10
    assert found.dtype == np.int64
    assert np.array_equal(found, np.maximum(sizes // 10, 1))


# The order in which examples come


def test_each_client_keeps_its_examples_in_another_order() -> None:
    shares = partition("quantity(0.5)").share(np.zeros(1000, np.int64), [Holding("all", 20)], seed=0)
    ordered = in_order_of_arrival(shares, seed=0)
    assert ordered.bounds.tolist() == shares.bounds.tolist()
    for client in range(20):
        before, after = shares.of(client), ordered.of(client)
        assert np.array_equal(np.sort(after), before)
        assert len(after) < 10 or not np.array_equal(after, before)
    assert np.array_equal(ordered.order, in_order_of_arrival(shares, seed=0).order)
    assert not np.array_equal(ordered.order, in_order_of_arrival(shares, seed=1).order)
    with pytest.raises(ValueError, match="read-only"):
        ordered.order[0] = 0


def test_every_order_is_equally_likely() -> None:
    shares = Shares.from_owners(np.repeat(np.arange(6000), 3), 6000)
    orders = in_order_of_arrival(shares, seed=0).order.reshape(-1, 3) % 3
    counts = np.unique_counts(orders @ [9, 3, 1]).counts
    assert len(counts) == 6
    assert ((counts - 1000) ** 2 / 1000).sum() < 21  # chi-squared with 5 degrees of freedom: below in all but 1e-3


def test_who_holds_the_other_examples_does_not_change_the_order() -> None:
    one = in_order_of_arrival(Shares.from_owners(np.array([0] * 50 + [1] * 50), 2), seed=3)
    other = in_order_of_arrival(Shares.from_owners(np.array([1] * 50 + [0, 2] * 25), 3), seed=3)
    assert one.of(0).tolist() == other.of(1).tolist()


@pytest.mark.slow
def test_the_order_of_a_million_clients_takes_seconds() -> None:
    shares = Shares.from_owners(np.random.default_rng(0).integers(0, 1_000_000, 2_000_000), 1_000_000)
    start = clock.perf_counter()
    in_order_of_arrival(shares, seed=0)
    assert clock.perf_counter() - start < 10


# How a stream is written


@given(streams)
def test_what_is_written_is_read_again_and_travels(given_stream: Stream) -> None:
    assert parse(str(given_stream)) == given_stream
    assert parse(given_stream) is given_stream
    assert pickle.loads(pickle.dumps(given_stream)) == given_stream


def test_how_a_stream_is_written() -> None:
    texts = ["linear(start=0.10, per_second=1e-3)", " poisson(per_second = 2, start = 0) ", "linear(1, 0)"]
    assert [str(parse(text)) for text in texts] == ["linear(0.1, 0.001)", "poisson(0, 2)", "linear(1, 0)"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("linear(1, 0.5)", "each client has 100% of its examples at the start (at least one), and gets no more"),
        ("poisson(0, 0)", "each client has 0% of its examples at the start (at least one), and gets no more"),
        ("linear(0.07, 1e-06)", "has 7% of its examples at the start (at least one), and gets 0.0001% of them each"),
    ],
)
def test_what_a_stream_does_in_words(text: str, words: str) -> None:
    assert words in parse(text).words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("liner(0.1, 1)", r"^there is no stream 'liner': did you mean 'linear'\?$"),
        ("linear", r"linear does not fit .* write linear\(start, per_second\)"),
        ("poisson(0.1)", r"poisson\(0\.1\) does not fit .* write poisson\(start, per_second\)"),
        ("linear(0.1, 1, 2)", "does not fit"),
        ("linear(start=0.1, speed=1)", "does not fit"),
        ("linear(-0.1, 1)", r"^start of linear is -0\.1, but must be a number from 0 to 1$"),
        ("poisson(1.1, 1)", r"^start of poisson is 1\.1, but must be a number from 0 to 1$"),
        ("linear(nan, 1)", "start of linear is nan"),
        ("linear(True, 1)", "start of linear is True"),
        ("linear(all, 1)", "^start of linear is 'all', but"),
        ("linear(0.1, -1)", "^per_second of linear is -1, but must be a finite number of at least 0$"),
        ("poisson(0.1, inf)", "per_second of poisson is inf"),
        ("poisson(0.1, '1')", "per_second of poisson is '1'"),
        ("0.1", r"the stream '0\.1' cannot be read; write for example linear\(start=0\.1, per_second=0\.001\)"),
        ("", "the stream '' cannot be read"),
        ("linear(", r"the stream 'linear\(' cannot be read"),
    ],
)
def test_a_stream_that_cannot_be_read(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
