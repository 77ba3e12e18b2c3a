"""Delays: exact quantiles and means, the same bits from floats and arrays, and one sentence for every bad input."""

import math
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.core import seeds
from fairlag.errors import InputError
from fairlag.fleet.delay import Constant, Delay, Mixture, Scaled, Trace, Uniform, parse
from fairlag.fleet.distribution import Exponential, Gamma, Lognormal, Normal, Pareto
from fairlag.fleet.trace import read

FIRST, LAST = 2.0**-53, 1 - 2.0**-53
DRAWS = seeds.uniforms(seeds.key(0, "test"), 0, 200_000)

INCREASING = [
    "constant(2.5)",
    "uniform(1, 2)",
    "uniform(0, 1)",
    "uniform(3, 3)",
    "normal(10, 2)",
    "normal(1, 3)",
    "normal(0, 1)",
    "normal(4, 0)",
    "exponential(600)",
    "lognormal(2, 0.75)",
    "lognormal(2, 0)",
    "gamma(2, 0.5)",
    "gamma(0.3, 7)",
    "pareto(10, 2.5)",
    "scaled(0.1, exponential(3))",
    "empirical(2, 2, 5.5)",
]
TEXTS = [
    *INCREASING,
    "mixture(0.9, uniform(1, 2), 0.1, pareto(10, 2.5))",
    "mixture(3, constant(1), 1, mixture(1, exponential(2), 2, gamma(2, 1)))",
    "scaled(2, mixture(1, uniform(0, 1), 1, constant(5)))",
]

units = st.floats(FIRST, LAST)
positive = st.floats(0.01, 1000)
delays: st.SearchStrategy[Delay] = st.recursive(
    st.builds(Constant, positive)
    | st.builds(lambda low, length: Uniform(low, low + length), positive, positive)
    | st.builds(Normal, positive, positive)
    | st.builds(Exponential, positive)
    | st.builds(Lognormal, positive, st.floats(0, 3))
    | st.builds(Gamma, st.floats(0.1, 50), positive)
    | st.builds(Pareto, positive, st.floats(1.01, 10)),
    lambda inner: (
        st.builds(Scaled, positive, inner)
        | st.builds(Mixture, st.lists(st.tuples(positive, inner), min_size=1, max_size=4).map(tuple))
    ),
    max_leaves=5,
)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A file of four recorded durations."""
    path = tmp_path / "recorded.csv"
    path.write_text("4\n1\n2\n1\n")
    return path


@pytest.mark.parametrize(
    ("text", "u", "duration"),
    [
        ("2.5", 0.3, 2.5),
        ("uniform(1, 3)", 0.25, 1.5),
        ("normal(100, 1)", 0.8413447460685429, 101.0),
        ("normal(0, 2)", 0.6826894921370859, 2.0),
        ("normal(4, 0)", 0.3, 4.0),
        ("exponential(2)", 1 - math.exp(-3), 6.0),
        ("lognormal(2, 3)", 0.8413447460685429, 2 * math.exp(3)),
        ("gamma(1, 2)", 1 - math.exp(-3), 6.0),
        ("gamma(2, 5)", 1 - 3 * math.exp(-2), 10.0),
        ("pareto(10, 2)", 0.75, 20.0),
        ("scaled(3, uniform(1, 2))", 0.5, 4.5),
    ],
)
def test_quantile_in_closed_form(text: str, u: float, duration: float) -> None:
    assert parse(text).quantile(u) == pytest.approx(duration, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "mean"),
    [
        ("7", 7.0),
        ("uniform(1, 3)", 2.0),
        ("normal(100, 1)", 100.0),
        ("normal(0, 2)", 2 * math.sqrt(2 / math.pi)),
        ("exponential(2)", 2.0),
        ("lognormal(2, 2)", 2 * math.exp(2)),
        ("gamma(3, 2)", 6.0),
        ("pareto(10, 3)", 15.0),
        ("mixture(3, 1, 1, 5)", 2.0),
        ("scaled(3, exponential(2))", 6.0),
    ],
)
def test_mean_in_closed_form(text: str, mean: float) -> None:
    assert parse(text).mean == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("text", TEXTS)
def test_mean_of_many_draws(text: str) -> None:
    delay = parse(text)
    drawn = delay.quantile(DRAWS)
    assert drawn.mean() == pytest.approx(delay.mean, abs=5 * drawn.std() / math.sqrt(drawn.size) + 1e-9)


@given(delay=delays, u=st.lists(units, min_size=1, max_size=20))
def test_array_gives_the_bits_of_floats(delay: Delay, u: list[float]) -> None:
    singles = [delay.quantile(one) for one in u]
    assert {type(single) for single in singles} == {float}
    assert delay.quantile(np.array(u)).tolist() == singles
    assert delay.quantile(np.array([u])).shape == (1, len(u))


@given(delay=delays, u=units)
def test_durations_are_finite_and_not_negative(delay: Delay, u: float) -> None:
    assert 0 <= delay.quantile(u) < math.inf


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("u", [FIRST, 0.5, 0.75, 0.9, LAST])
def test_ends_and_edges_are_finite(text: str, u: float) -> None:
    assert 0 <= parse(text).quantile(u) < math.inf


@given(text=st.sampled_from(INCREASING), u=st.tuples(units, units).map(sorted))
def test_quantile_increases(text: str, u: list[float]) -> None:
    low, high = (parse(text).quantile(one) for one in u)
    assert low <= high * (1 + 1e-9) + 1e-12


def test_mixture_shares_the_interval_among_its_parts() -> None:
    mixture = parse("mixture(3, uniform(0, 1), 1, uniform(10, 20))")
    assert [mixture.quantile(u) for u in (0.375, 0.875)] == [0.5, 15.0]
    assert mixture.quantile(0.75) == pytest.approx(10, rel=1e-12)


@given(delay=delays)
def test_text_reads_back(delay: Delay) -> None:
    assert parse(str(delay)) == delay
    assert hash(parse(str(delay))) == hash(delay)


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_canonical(text: str) -> None:
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("written", "delay"),
    [
        (2.5, Constant(2.5)),
        (3, Constant(3)),
        (np.float32(0.5), Constant(0.5)),
        (" 2.5 ", Constant(2.5)),
        ("1e3", Constant(1000)),
        ("gamma(shape=2, scale=0.5)", Gamma(2, 0.5)),
        ("gamma(2, scale=0.5)", Gamma(2, 0.5)),
        ("normal(mean=2, deviation=1)", Normal(2, 1)),
        ("scaled(2, 3)", Scaled(2, Constant(3))),
        ("mixture(1, 2,\n        1, uniform(1, 2))", Mixture(((1, Constant(2)), (1, Uniform(1, 2))))),
        (Uniform(1, 2), Uniform(1, 2)),
    ],
)
def test_ways_of_writing(written: str | float | Delay, delay: Delay) -> None:
    assert parse(written) == delay


@pytest.mark.parametrize("text", TEXTS)
def test_delays_travel_to_other_processes(text: str) -> None:
    delay = parse(text)
    assert pickle.loads(pickle.dumps(delay)) == delay


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        ("unifrom(1, 2)", ["'unifrom'", "did you mean 'uniform'?"]),
        ("zzz", ["'zzz': choose from constant, empirical, exponential, gamma", "pareto", "trace"]),
        ("uniform", ["uniform does not fit", "write uniform(low, high)"]),
        ("uniform(1)", ["uniform(1) does not fit", "'high'", "write uniform(low, high)"]),
        ("gamma(1, 2, 3)", ["gamma(1, 2, 3) does not fit", "too many", "gamma(shape, scale)"]),
        ("gamma(1, size=3)", ["gamma(1, size=3) does not fit", "gamma(shape, scale)"]),
        ("normal(1)", ["normal(mean, deviation)"]),
        ("trace()", ["trace(path)"]),
        ("uniform(-1, 2)", ["low of uniform is -1", "at least 0"]),
        ("constant(-1)", ["seconds of constant is -1", "at least 0"]),
        ("normal(-3, 1)", ["mean of normal is -3"]),
        (-0.5, ["-0.5", "at least 0"]),
        ("uniform(3, 2)", ["uniform(3, 2)", "low 3 above high 2"]),
        ("uniform(1, inf)", ["high of uniform is inf", "finite"]),
        ("exponential(nan)", ["mean of exponential is nan", "finite"]),
        ("1e999", ["inf", "finite"]),
        ("uniform(1, 1" + 400 * "0" + ")", ["high of uniform is 1000", "finite"]),
        ("uniform(1, 'a')", ["high of uniform is 'a'", "number"]),
        ("uniform(1, uniform(2, 3))", ["high of uniform is uniform(2, 3)", "number"]),
        ("uniform(True, 2)", ["low of uniform is True"]),
        (True, ["True"]),
        ("mixture()", ["mixture()", "write mixture(weight, delay, *more_pairs)"]),
        ("mixture(1, 2, 3)", ["3 arguments", "write mixture(weight, delay, weight, delay, ...)"]),
        ("mixture(0, 2)", ["weight of mixture is 0", "above 0"]),
        ("mixture(1e308, 2, 1e308, 3)", ["sum of the weights of mixture is inf"]),
        ("mixture(1, unifrom(1, 2))", ["'unifrom'", "did you mean 'uniform'?"]),
        ("constant(0)", ["constant(0) has mean 0", "virtual time advances only"]),
        (0, ["constant(0) has mean 0"]),
        ("uniform(0, 0)", ["uniform(0, 0) has mean 0"]),
        ("scaled(0, 2)", ["scaled(0, constant(2)) has mean 0"]),
        ("lognormal(1, 100)", ["lognormal(1, 100) has mean inf"]),
        ("pareto(10, 1)", ["shape of pareto is 1", "above 1", "infinite"]),
        ("", ["''", "write for example uniform(1, 2)"]),
        ("uniform(1,", ["'uniform(1,'", "write for example uniform(1, 2)"]),
        ("'quoted'", ["quoted", "write for example uniform(1, 2)"]),
        ("uniform(1, 2 * 3)", ["'2 * 3'", "'uniform(1, 2 * 3)'", "must be a number"]),
        ("trace(recorded.csv)", ["'recorded.csv'", "file name in quotes"]),
        ("empirical()", ["empirical(duration, *more_durations)"]),
        ("empirical(1, -2)", ["a duration of empirical is -2", "at least 0"]),
        ("empirical(0, 0)", ["empirical(0, 0) has mean 0"]),
        ("empirical(1, exponential(2))", ["a duration of empirical is exponential(2)"]),
        ("trace(5)", ["path of trace is 5", "file name in quotes"]),
        ("uniform(*both)", ["'*both'"]),
        ("uniform(low=1, low=2)", ["uniform(low=1, low=2)"]),
        ("uniform(**both)", ["uniform(**both)"]),
        ("__import__('os').getcwd()", ["__import__"]),
        ("1\0", [r"'1\x00'"]),
        ("trace('missing.csv')", ["'missing.csv'", "No such file", "name a CSV file"]),
    ],
)
def test_bad_input_is_one_sentence_with_the_value(written: str | float, parts: list[str]) -> None:
    assert_refused(lambda: parse(written), parts)


def test_python_users_get_the_same_errors() -> None:
    assert_refused(lambda: Uniform(-1, 2), ["low of uniform is -1"])
    assert_refused(lambda: Mixture(()), ["needs at least one delay", "write for example mixture("])


def test_trace_draws_every_recorded_duration_equally_often(recorded: Path) -> None:
    trace = Trace(recorded)
    assert (trace.durations.tolist(), trace.mean) == ([1.0, 1.0, 2.0, 4.0], 2.0)
    assert [trace.quantile(u) for u in (FIRST, 0.49, 0.5, 0.74, 0.75, LAST)] == [1, 1, 2, 2, 4, 4]
    assert trace.quantile(DRAWS[:100]).tolist() == [trace.quantile(u) for u in DRAWS[:100].tolist()]
    assert trace.quantile(DRAWS).mean() == pytest.approx(2, rel=0.01)


def test_trace_reads_back(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = parse('trace("recorded.csv")', folder=recorded.parent)
    assert trace == parse(str(trace)) == parse(str(trace), folder=tmp_path / "elsewhere") == Trace(recorded)
    assert parse("scaled(2, trace('recorded.csv'))", folder=recorded.parent) == Scaled(2, trace)
    assert pickle.loads(pickle.dumps(trace)) == trace
    monkeypatch.chdir(tmp_path)
    assert str(parse('trace("recorded.csv")')) == "trace('recorded.csv')"


def test_trace_with_a_header(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes('\ufeffdevice, delay ,note\r\nphone,3,"two\r\nlines"\r\n\r\nwatch,1.5,\r\n'.encode())
    assert read(path).tolist() == [3.0, 1.5]


def test_a_trace_takes_little_more_memory_than_its_durations(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("1\n2\n" * 50_000)
    tracemalloc.start()
    try:
        trace = Trace(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(trace.durations) == 100_000
    assert most < 3 * 8 * len(trace.durations)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"1," * 600_000, ["a line has more than 1,000,000 characters"]),
        (b"1\n\nfast\n", ["line 3", "'fast'", "at least 0"]),
        (b"1\n-2\n", ["line 2", "-2.0", "at least 0"]),
        (b"delay\n1\nnan\n", ["line 3", "nan", "finite"]),
        (b"device,delay\nphone,1\nwatch\n", ["line 3", "''"]),
        (b"1\n2,3\n", ["line 2", "'2,3'"]),
        (b"time,seconds\n1,2\n", ["'time,seconds'", "column delay"]),
        (b"delay\n", ["no durations"]),
        (b"", ["no durations"]),
        (b"0\n0\n", ["has mean 0"]),
        (b"\xff\xfe1\n", ["UTF-8"]),
    ],
)
def test_bad_trace_is_one_sentence_with_line_and_value(content: bytes, parts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    assert_refused(lambda: Trace(path), ["bad.csv", *parts])


def test_a_trace_is_a_plain_file() -> None:
    assert_refused(lambda: Trace(Path("/dev/zero")), ["/dev/zero", "is not a regular file"])


def assert_refused(action: Callable[[], object], parts: list[str]) -> None:
    """The action raises one sentence that contains all parts."""
    with pytest.raises(InputError) as refusal:
        action()
    sentence = str(refusal.value)
    assert "\n" not in sentence and ". " not in sentence
    assert [part for part in parts if part not in sentence] == []
