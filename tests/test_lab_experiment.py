"""Experiment files: what they mean, and that every mistake in one is a sentence with the value and what is accepted."""

from pathlib import Path
from typing import Any

import pytest

from fairlag.analyse.audit import audit
from fairlag.core.strategy import Strategy
from fairlag.errors import ExperimentError, InputError, StrategyError
from fairlag.lab.experiment import load, parse, presets
from fairlag.rules.rule import traits
from fairlag.zoo import fedbuff

GROUP: dict[str, Any] = {"group": "all", "count": 3, "delay": "uniform(1, 2)"}
USE: dict[str, Any] = {"use": "buffered_fedavg", "buffer": 2}


def tables(**changes: Any) -> dict[str, Any]:
    return {"name": "test", "aggregations": 10, "clients": [GROUP], "strategies": [USE], **changes}


def test_the_documented_shape_is_read() -> None:
    experiment = load("paper-fashion-mnist")
    assert (experiment.name, experiment.seed, experiment.aggregations) == ("paper-fashion-mnist", 0, 4000)
    assert [(table.group, table.count, table.labels) for table in experiment.clients] == [
        ("fast", 10, (4, 5, 6, 7, 8, 9)),
        ("slow", 5, (0, 1, 2, 3)),
    ]
    assert [use.label for use in experiment.strategies] == [
        "Buffered FedAvg",
        "FedStaleWeight",
        "FedStaleWeight (scaling=algorithm1)",
        "FairShare",
    ]
    assert experiment.fleet().mean_durations.tolist() == [1.5] * 10 + [10.0] * 5


@pytest.mark.parametrize("name", presets())
def test_every_preset_loads_and_says_what_it_is(name: str) -> None:
    assert load(name).name == name
    assert presets()[name].startswith("# ")


def test_a_label_that_no_file_can_hold_is_refused() -> None:
    with pytest.raises(ExperimentError, match=r"label: it is 'a\\ud800', but half a character .* cannot be written"):
        parse(tables(strategies=[{**USE, "label": "a\ud800"}]))


def test_a_label_can_be_given() -> None:
    labelled = parse(tables(strategies=[{**USE, "label": "mine"}]))
    assert labelled.strategies[0].label == "mine"
    assert labelled.strategies[0].parameters == {"buffer": 2}


def test_everything_a_group_can_say() -> None:
    group = {
        **GROUP,
        "availability": "alternating(exponential(60), 30)",
        "join": 5,
        "leave": 500.0,
        "vanish": 0.1,
        "away": "exponential(9)",
        "download": 100,
        "upload": "uniform(1, 2)",
        "overhead": "constant(20)",
    }
    fleet = parse(tables(clients=[group], model_bytes=1_000_000)).fleet()
    built = fleet.groups[0]
    assert (built.join, built.leave, built.vanish, str(built.away)) == (5.0, 500.0, 0.1, "exponential(9)")
    # 8 megabits down at 100 Mbit/s and up at 1 to 2 Mbit/s, on top of 1.5 s of work and 20 s of the deployment's own.
    assert (fleet.mean_durations > 1.5 + 20 + 0.08 + 4).all()
    assert (fleet.mean_durations < 1.5 + 20 + 0.08 + 8).all()


def test_a_group_may_have_steps_of_its_own_and_a_delay_for_each() -> None:
    clients = [
        {"group": "usual", "count": 1, "delay": 2, "delay_per": "step"},
        {"group": "own", "count": 2, "delay": 2, "delay_per": "step", "steps": 5},
        {"group": "whole", "count": 1, "delay": 2, "delay_per": "task", "steps": 7},
    ]
    fleet = parse(tables(clients=clients)).fleet()
    assert fleet.steps.tolist() == [1, 5, 5, 7] and fleet.mean_durations.tolist() == [2, 10, 10, 2]
    fleet = parse(tables(clients=clients, local={"steps": 4})).fleet(seed=3)
    assert fleet.steps.tolist() == [4, 5, 5, 7] and fleet.mean_durations.tolist() == [8, 10, 10, 2]


def test_a_delay_per_task_is_the_default_and_changes_no_epochs() -> None:
    plain = parse(tables(local={"epochs": 2}))
    assert parse(tables(local={"epochs": 2}, clients=[{**GROUP, "delay_per": "task"}])) == plain
    assert not plain.fleet().per_step and plain.fleet().steps.tolist() == [1, 1, 1]


@pytest.mark.parametrize("cap", ["none", False, float("inf")])
def test_no_cap_can_be_said_in_toml(cap: object) -> None:
    experiment = parse(tables(strategies=[{"use": "fairshare", "buffer": 2, "cap": cap}]))
    weigh = experiment.strategy(experiment.strategies[0]).weigh
    assert traits(weigh).label.endswith((", None)", ", inf)"))


def test_false_stays_false_where_it_is_a_value() -> None:
    experiment = parse(tables(strategies=[{**USE, "fresh": False}]))
    assert not experiment.strategy(experiment.strategies[0]).select.fresh


def learning(**data: Any) -> dict[str, Any]:
    return {"data": {"use": "digits", **data}, "model": {"use": "logistic"}}


def test_the_data_may_stream() -> None:
    streams = parse(tables(**learning(stream="poisson(start=0.10, per_second=1e-3)"))).data
    assert streams is not None and streams.stream == "poisson(0.1, 0.001)"
    assert streams.parameters == {}  # it is none of the data set's own
    whole = parse(tables(**learning())).data
    assert whole is not None and whole.stream is None


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"agregations": 5}, "unknown key 'agregations': did you mean 'aggregations'?"),
    ({"clients": [{**GROUP, "dealy": 1}]}, "unknown key 'clients[1].dealy': did you mean 'delay'?"),
    ({"strategies": [{"use": "fedbuf"}]}, "unknown strategy 'fedbuf': did you mean 'fedbuff'?"),
    ({"strategies": [{"use": "fedbuff", "bufer": 3}]}, "'fedbuff' has no parameter 'bufer': did you mean 'buffer'?"),
    ({"strategies": [{**USE, "buffer": 0}]}, "the buffer is 0, it must be a positive whole number"),
    ({"strategies": [{**USE, "buffer": 2.5}]}, "buffer of 'buffered_fedavg' is 2.5: it must be a valid integer"),
    ({"strategies": [{**USE, "buffer": 4}]}, "a buffer of 4 never fills with 3 clients"),
    ({"strategies": [{"use": "fedavg", "cohort": 4}]}, "cohort(4) needs 4 clients, the fleet has 3"),
    ({"strategies": [USE, USE]}, "two strategies are labelled"),
    ({"strategies": []}, "strategies is []"),
    ({"clients": [{**GROUP, "delay": "uniform(-1, 2)"}]}, "-1"),
    ({"clients": [{**GROUP, "delay": "unifrom(1, 2)"}]}, "unifrom"),
    ({"clients": [{**GROUP, "overhead": "unifrom(1, 2)"}]}, "overhead of group 'all': there is no delay 'unifrom'"),
    ({"clients": [{**GROUP, "overhead": True}]}, "it is True, but must be a number or a distribution"),
    ({"clients": [{**GROUP, "count": 0}]}, "clients[1].count is 0: it must be greater than or equal to 1"),
    ({"clients": [GROUP, GROUP]}, "two groups have the same name"),
    ({"clients": [{**GROUP, "labels": [0, 1, 3]}]}, "no client holds the label 2"),
    ({"clients": [{**GROUP, "labels": []}]}, "clients[1].labels"),
    ({"clients": [{**GROUP, "vanish": 1.0}]}, "clients[1].vanish is 1.0"),
    ({"clients": [{**GROUP, "join": 9, "leave": 3}]}, "joins at 9.0 and leaves at 3.0"),
    ({"clients": [{**GROUP, "upload": 5}]}, "there is no `model_bytes`"),
    ({"clients": [{**GROUP, "availability": "nightly"}]}, "nightly"),
    ({"clients": [{**GROUP, "steps": 0}]}, "clients[1].steps is 0: it must be greater than or equal to 1"),
    ({"clients": [{**GROUP, "steps": 2.5}]}, "clients[1].steps is 2.5: it must be a valid integer"),
    ({"clients": [{**GROUP, "steps": 10**10}]}, "group 'all' has 10000000000 local steps"),
    ({"clients": [{**GROUP, "delay_per": "epoch"}]}, "clients[1].delay_per is 'epoch': it must be 'task' or 'ste"),
    (
        {"clients": [{**GROUP, "group": "a"}, {**GROUP, "steps": 5}], "local": {"epochs": 1}},
        "group 'all' has steps = 5, but `steps` needs [local] in steps, not epochs",
    ),
    (
        {"clients": [{**GROUP, "delay_per": "step"}], "local": {"epochs": 1}},
        "group 'all' has a delay per step, which needs [local] in steps, not epochs: otherwise a duration would depend",
    ),
    ({"aggregations": 0}, "aggregations is 0"),
    ({"aggregations": None}, "nothing says when to stop"),
    ({"until_time": -1.0}, "until_time is -1.0"),
    ({"seed": "x"}, "seed is 'x': it must be a valid integer"),
    (learning(stream="linear(2, 0.1)"), "data.stream: start of linear is 2, but must be a number from 0 to 1"),
    (learning(stream="poison(0, 1)"), "data.stream: there is no stream 'poison': did you mean 'poisson'?"),
    (learning(stream=0.1), "data.stream is 0.1: it must be a valid string"),
    (learning(partition="iid(3)"), "data.partition: iid(3) does not fit"),
]


@pytest.mark.parametrize(("changes", "words"), MISTAKES, ids=[words for _, words in MISTAKES])
def test_a_mistake_is_one_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(tables(**changes))
    message = str(caught.value)
    assert words in message
    assert "\n" not in message


def test_files_are_found_read_and_blamed(tmp_path: Path) -> None:
    with pytest.raises(
        ExperimentError, match=r"no experiment file or preset 'x': choose from cancer, demo, diabetes, flicker, million"
    ):
        load("x")
    with pytest.raises(ExperimentError, match=r"did you mean 'paper-cifar10'"):
        load("paper-cifar")
    bad = tmp_path / "bad.toml"
    bad.write_text("name = \n")
    with pytest.raises(ExperimentError, match=r"bad.toml is not valid TOML: .*line 1"):
        load(bad)
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(ExperimentError, match="cannot read the experiment file"):
        load(bad)
    with pytest.raises(ExperimentError, match="cannot read the experiment file"):
        load(tmp_path)


MODULE = """
import numpy as np
from fairlag.core.buffer import Buffer
from fairlag.rules import reads_updates
from fairlag.zoo import fedbuff

def freshest(buffer: "fairlag.core.buffer.Buffer", view: "Unknown", *, sharpness: float = 1.0):
    weights = np.exp(-sharpness * buffer.staleness)
    return weights / weights.sum()

def annotated(buffer: Buffer, view, *, sharpness: float = 1.0):
    return freshest(buffer, view, sharpness=sharpness)

@reads_updates
def shortest(buffer, view):
    return 1 / np.linalg.norm(buffer.updates, axis=1)

def whole(size: int = 3):
    return fedbuff(buffer=size, concurrency=2)

def nonsense():
    return 5

value = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    name = f"rules_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(MODULE)
    return tmp_path / f"{name}.py"


def own(folder: Path, function: str, **parameters: object) -> str:
    lines = [f"{key} = {value!r}" for key, value in parameters.items()]
    text = f"""
        name = "own"
        aggregations = 5
        [[clients]]
        group = "all"
        count = 4
        delay = 1
        [[strategies]]
        use = "{folder.stem}:{function}"
    """
    path = folder.with_suffix(".toml")
    path.write_text(text + "\n".join(lines))
    return str(path)


def test_a_users_own_weighting_is_imported_from_beside_the_file(folder: Path) -> None:
    experiment = load(own(folder, "freshest", buffer=3, sharpness=0.5))
    strategy = experiment.strategy(experiment.strategies[0])
    assert strategy.trigger.needs == 3
    assert traits(strategy.weigh).label == "freshest"
    assert experiment.strategies[0].label == "freshest (buffer=3, sharpness=0.5)"


def test_a_users_own_weighting_may_be_annotated(folder: Path) -> None:
    with pytest.raises(ExperimentError, match=r"sharpness of .* is 'much'"):
        load(own(folder, "annotated", buffer=3, sharpness="much"))
    load(own(folder, "annotated", buffer=3, sharpness=2.0))


def test_a_users_own_weighting_may_read_updates_if_it_says_so(folder: Path) -> None:
    experiment = load(own(folder, "shortest", buffer=3))
    assert experiment.strategy(experiment.strategies[0]).readers == ("weigh",)


def test_a_users_own_function_may_return_a_strategy(folder: Path) -> None:
    experiment = load(own(folder, "whole", size=2))
    assert experiment.strategy(experiment.strategies[0]).trigger.needs == 2


@pytest.mark.parametrize(
    ("function", "parameters", "words"),
    [
        ("freshest", {"sharpnes": 1}, "did you mean 'sharpness'?"),
        ("nonsense", {}, "returned int"),
        ("missing", {}, "has no function 'missing'"),
        ("value", {}, "has no function 'value'"),
    ],
)
def test_a_users_own_function_that_does_not_fit(
    folder: Path, function: str, parameters: dict[str, object], words: str
) -> None:
    with pytest.raises(ExperimentError) as caught:
        load(own(folder, function, **parameters))
    assert words in str(caught.value)


def test_a_module_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"cannot import 'no_such_module_at_all' for 'no_such_module_at_all:rule'"):
        parse(tables(strategies=[{"use": "no_such_module_at_all:rule"}]))


def test_only_keeps_what_is_named_or_adds_from_the_zoo() -> None:
    experiment = load("paper-fashion-mnist")
    assert [use.use for use in experiment.only(["fairshare"]).strategies] == ["fairshare"]
    assert len(experiment.only(["fedstaleweight"]).strategies) == 2
    assert [use.label for use in experiment.only(["FairShare", "fedbuff"]).strategies] == [
        "FairShare",
        "FedBuff (buffer=5)",  # the file's
    ]
    assert experiment.only([]) == experiment
    with pytest.raises(InputError, match="unknown strategy 'fairshar'"):
        experiment.only(["fairshar"])


def test_in_python_a_function_or_a_strategy_goes_where_a_name_would() -> None:
    experiment = load("demo").checked(
        strategies=[{"use": lambda buffer, view: [1.0] * len(buffer), "buffer": 3}, {"use": fedbuff(buffer=2)}]
    )
    assert [use.label for use in experiment.strategies] == ["<lambda> (buffer=3)", "Strategy"]
    assert [experiment.strategy(use).trigger.needs for use in experiment.strategies] == [3, 2]
    with pytest.raises(InputError, match=r"cannot be sent to other processes .* workers=1"):
        audit(experiment, workers=2)
    assert audit(experiment.checked(aggregations=5), seeds=1, incentive_updates=100)[0].use == "<lambda>"


def test_a_function_that_returns_a_strategy_may_need_two_values() -> None:
    def make(first: int, second: int) -> Strategy:
        return fedbuff(buffer=first + second)

    experiment = load("demo").checked(strategies=[{"use": make, "first": 2, "second": 1}])
    assert experiment.strategy(experiment.strategies[0]).trigger.needs == 3


def test_what_is_neither_name_nor_function_nor_strategy_is_refused() -> None:
    with pytest.raises(InputError, match=r"strategies\[1\].use: it is 5, but must be a name, a function or a Strategy"):
        parse(tables(strategies=[{"use": 5}]))
    with pytest.raises(InputError, match="a Strategy takes no parameters, but lr was given"):
        parse(tables(strategies=[{"use": fedbuff(buffer=2), "lr": 1.0}]))


def test_importance_names_groups_that_there_are() -> None:
    named = {"use": "fairshare", "importance": {"slw": 2.0}}
    sentence = r"importance names the group 'slw', which does not exist: did you mean 'slow'\?"
    with pytest.raises(StrategyError, match=sentence):
        load("demo").checked(strategies=(named,))
