"""Making the runs of a plan: failures that leave the others alone, Ctrl-C at any time, versions, and names."""

import json
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag import zoo
from fairlag.core.vector import Layout, Vector
from fairlag.data import partition
from fairlag.data.split import split
from fairlag.errors import DivergedError, FairlagError, InputError, Interrupted
from fairlag.execute.processes import Processes
from fairlag.execute.serial import Serial
from fairlag.lab import loop
from fairlag.lab.events import Event, Progress
from fairlag.lab.executors import ExecutorChoice
from fairlag.lab.experiment import load, parse
from fairlag.lab.loop import RunLoop
from fairlag.lab.plan import Plan, Planned
from fairlag.lab.resources import Resources
from fairlag.lab.run import Run
from fairlag.lab.serialise import key_of
from fairlag.lab.simulate import execute
from fairlag.lab.store import Store
from fairlag.rules.apply import Apply
from tests.support.edits import edited
from tests.support.experiments import idle

_error: FairlagError | None = None
"""What the weighting raises; None once it is mended."""


def moody(buffer: Any, view: Any) -> Any:
    if _error is not None and view.version == 2:
        raise _error
    return np.full(len(buffer), 1 / len(buffer))


@pytest.fixture
def moods() -> Iterator[Callable[[FairlagError | None], None]]:
    def become(error: FairlagError | None) -> None:
        global _error
        _error = error

    yield become
    become(None)


def meta(folder: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(folder / "run.sqlite")) as database:
        return {key: json.loads(value) for key, value in database.execute("SELECT key, value FROM meta")}


Moods = Callable[[FairlagError | None], None]


# Runs that fail


@pytest.mark.parametrize(("error", "kind"), [(InputError("bad"), InputError), (DivergedError("bad"), FairlagError)])
def test_a_run_that_fails_leaves_the_others_alone(
    tmp_path: Path, moods: Moods, error: FairlagError, kind: type[FairlagError]
) -> None:
    moods(error)
    plan = Plan(idle(moody, "fedbuff"), (0, 1), tmp_path)
    with pytest.raises(FairlagError) as caught:
        execute(plan, new=True)
    assert type(caught.value) is kind
    sentence = f"2 of 4 runs failed; `fairlag resume {tmp_path}` tries them again: moody, seed 0: bad; moody, seed 1: "
    assert str(caught.value).startswith(sentence)
    found = [meta(planned.folder) for planned in plan]
    assert [each["status"] for each in found] == ["failed", "finished"] * 2
    assert found[0]["reason"] == "bad"
    moods(None)
    assert [run.status for run in execute(plan)] == ["finished"] * 4
    assert meta(next(iter(plan)).folder)["reason"] == "5 aggregations were made"


def test_what_failed_is_tried_again_after_the_others(tmp_path: Path, moods: Moods) -> None:
    moods(InputError("bad"))
    plan = Plan(idle(moody, "fedbuff"), (0,), tmp_path)
    heard: list[str] = []

    def interrupt(planned: Planned, event: Event) -> None:
        if isinstance(event, Progress) and planned.use.label == "FedBuff" and not heard:
            heard.append("stop")
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        execute(plan, new=True, watch=interrupt)
    moods(None)
    heard.clear()
    execute(plan, watch=lambda planned, _: heard.append(planned.use.label))
    assert list(dict.fromkeys(heard)) == ["FedBuff", "moody"]


def test_the_only_run_fails_with_its_own_error(tmp_path: Path, moods: Moods) -> None:
    moods(DivergedError("bad"))
    with pytest.raises(DivergedError, match=r"^bad$"):
        execute(Plan(idle(moody), (0,), tmp_path, single=True), new=True)
    assert meta(tmp_path)["status"] == "failed"


def test_a_plan_that_somebody_else_makes_is_refused(tmp_path: Path) -> None:
    plan = Plan(idle("fedbuff", "buffered_fedavg"), (0,), tmp_path)
    execute(plan, new=True)
    with Store.open(next(iter(plan)).folder), pytest.raises(InputError, match="is being written by another process"):
        execute(plan)


# Ctrl-C


def last_moment(buffer: Any, view: Any) -> Any:
    if view.version == 4:
        signal.raise_signal(signal.SIGINT)
    return np.full(len(buffer), 1 / len(buffer))


def test_ctrl_c_in_the_last_moment_of_a_run_keeps_the_next_from_being_made(tmp_path: Path) -> None:
    plan = Plan(idle(last_moment, "fedbuff"), (0,), tmp_path)
    with pytest.raises(Interrupted, match="interrupted at version 5 of last_moment, seed 0"):
        execute(plan, new=True)
    first, second = plan
    assert Run(first.folder).status == "finished" and not second.folder.exists()
    assert [run.status for run in execute(plan)] == ["finished"] * 2


def test_where_ctrl_c_is_ignored_it_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        (run,) = execute(Plan(idle(last_moment), (0,), tmp_path), new=True)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert run.status == "finished"


# What is kept


def learning(**tables: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "aggregations": 9,
        "clients": [
            {"group": "slow/old", "count": 3, "delay": "uniform(4, 6)"},
            {"group": "a=b.c", "count": 3, "delay": "uniform(1, 2)"},
        ],
        "strategies": [{"use": "fedbuff", "buffer": 2}],
        "data": {"use": "digits"},
        "model": {"use": "logistic"},
        "evaluate": {"every": 3, "sample": 50},
        **tables,
    }


def test_groups_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT", 0.0)
    monkeypatch.setattr(loop, "_COSTLY", 0)
    (run,) = execute(Plan(parse(learning()), (0,), tmp_path), new=True, workers=1)
    assert run.groups == ["slow/old", "a=b.c"] and run.status == "finished"
    assert run.evaluations.query("scope == 'all'")["version"].tolist() == [0, 3, 6, 9, 9]


def test_the_server_rule_of_a_run_is_told_the_parts_of_its_model(tmp_path: Path) -> None:
    seen: list[Layout] = []

    def init(first: Vector, layout: Layout) -> tuple[object, ...]:
        seen.append(layout)
        return ()

    rule = Apply("notes", init, lambda step, state, parameters: (step, state))
    uses = [{"use": replace(zoo.fedbuff(buffer=2), apply=rule), "label": "notes"}]
    execute(Plan(parse(learning(aggregations=1, strategies=uses)), (0,), tmp_path), new=True, workers=1)
    assert seen and seen[0].shapes == ((10, 64), (10,))


def test_a_costly_checkpoint_is_made_more_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CHECKPOINT", 0.0)
    monkeypatch.setattr(loop, "_COSTLY", 1e6)
    commits: list[int] = []
    commit = RunLoop._commit

    def counted(run: RunLoop) -> None:
        commits.append(1)
        commit(run)

    monkeypatch.setattr(RunLoop, "_commit", counted)
    execute(Plan(idle(aggregations=400), (0,), tmp_path), new=True)
    assert len(commits) == 2, "the first one may have met a stall of the disk"


def test_what_a_run_was_made_of_is_kept(tmp_path: Path) -> None:
    experiment = idle()
    (run,) = execute(Plan(experiment, (0,), tmp_path), new=True)
    assert run.meta["experiment_key"] == key_of(experiment)
    assert run.meta["numpy"] == np.__version__


def test_another_version_of_a_library_is_remarked_on_once(
    tmp_path: Path, moods: Moods, capsys: pytest.CaptureFixture[str]
) -> None:
    moods(InputError("bad"))
    plan = Plan(idle(moody), (0, 1), tmp_path)
    with pytest.raises(InputError):
        execute(plan, new=True)
    for planned in plan:
        with edited(planned.folder) as database:
            database.execute("UPDATE meta SET value = '\"1.0\"' WHERE key = 'numpy'")
    moods(None)
    assert capsys.readouterr().err == ""
    execute(plan)
    assert capsys.readouterr().err == (f"begun with numpy 1.0, resumed with {np.__version__}: results may differ\n")


def no_model(**_: object) -> None:
    raise AssertionError


def test_who_holds_what_is_known_without_a_model() -> None:
    train, shares = Resources(parse(learning(model={"use": no_model}))).shares(4)
    placement = Resources(parse(learning())).setting(4).placement
    assert placement is not None
    assert np.array_equal(train[shares.order], placement.holdings)
    assert np.array_equal(shares.bounds, placement.bounds)


def test_where_the_data_stream_examples_are_in_the_order_in_which_they_come() -> None:
    whole = Resources(parse(learning())).setting(4)
    stream = Resources(parse(learning(data={"use": "digits", "stream": "poisson(0.1, 0.01)"}))).setting(4)
    assert whole.placement is not None and stream.placement is not None
    assert np.array_equal(whole.placement.bounds, stream.placement.bounds)
    assert np.array_equal(whole.placement.tests, stream.placement.tests)
    for client in range(6):
        before, after = whole.placement.of(client), stream.placement.of(client)
        assert np.array_equal(before, np.sort(after)) and not np.array_equal(before, after)
    # 1,438 training examples of six clients; ⌊239.67 / 10⌋ of each are there at first.
    assert whole.examples.tolist() == stream.examples.tolist() == whole.visible.tolist()
    assert sorted(whole.visible.tolist()) == [239, 239, 240, 240, 240, 240]
    assert sorted(stream.visible.tolist()) == [23, 23, 24, 24, 24, 24]


def test_the_order_in_which_examples_come_is_a_matter_of_the_seed() -> None:
    resources = Resources(parse(learning(data={"use": "digits", "stream": "linear(0.1, 0.01)", "partition": "sorted"})))
    orders = [shares.order.tobytes() for shares in (resources.shares(seed)[1] for seed in (4, 4, 5))]
    assert orders[0] == orders[1] != orders[2]


def test_where_nothing_is_trained_nobody_sees_anything() -> None:
    setting = Resources(idle()).setting(0)
    assert setting.visible.tolist() == setting.examples.tolist() == [0] * 8


def test_without_a_stream_the_placement_is_what_the_partition_says() -> None:
    resources = Resources(parse(learning()))
    train, test = split(resources.data, 0.2, seed=4)
    shares = partition.parse("iid").share(resources.data.labels[train], resources.groups, seed=4)
    placement = resources.setting(4).placement
    assert placement is not None
    assert np.array_equal(placement.holdings, train[shares.order])
    assert np.array_equal(placement.bounds, shares.bounds)
    assert np.array_equal(np.sort(placement.tests), test)


@pytest.mark.parametrize(
    ("tables", "workers", "expected"),
    [
        ({}, None, Serial),
        ({"strategies": [{"use": "asofed"}]}, None, Processes),
        ({"model": {"use": "mlp", "hidden": 2000}}, None, Processes),
        ({}, 2, Processes),
        ({"model": {"use": "mlp", "hidden": 2000}}, 1, Serial),
    ],
    ids=["small", "a direction", "large", "small, as asked for", "large, as asked for"],
)
def test_small_models_are_computed_here_unless_told_otherwise(
    tables: dict[str, Any], workers: int | None, expected: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlag.lab.executors.cores", lambda: 2)
    experiment = parse(learning(**tables))
    with closing(Resources(experiment, ExecutorChoice(workers=workers))) as resources:
        executor = resources.executor(resources.setting(0), experiment.strategy(experiment.strategies[0]))
        assert type(executor) is expected


def test_no_more_workers_than_can_be_used(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("fairlag.lab.executors.cores", lambda: 64)
    asked: list[int] = []

    class Engaged:
        def __init__(self, *given: object, workers: int, **more: object) -> None:
            asked.append(workers)

        def begin(self, *given: object) -> None: ...

        def close(self) -> None: ...

    monkeypatch.setattr("fairlag.execute.processes.Processes", Engaged)
    experiment = load("demo").checked(evaluate={"sample": 300})
    for workers in (17, 18, 1000):
        with closing(Resources(experiment, ExecutorChoice("processes", workers=workers))) as resources:
            resources.executor(resources.setting(0), experiment.strategy(experiment.strategies[0]))
    assert asked == [17, 17, 17]
    said = capsys.readouterr().err.splitlines()
    assert said == [f"17 workers instead of {workers}: at most 17 jobs run at the same time" for workers in (18, 1000)]
    monkeypatch.setattr("fairlag.lab.executors.cores", lambda: 2)
    assert ExecutorChoice("processes", workers=1000).limited(17).workers == 2
    assert capsys.readouterr().err == "2 workers instead of 1000: this machine has 2 cores\n"
    assert ExecutorChoice("ray", workers=1000, address="10.0.0.1:6379").limited(17).workers == 17


def test_one_stall_of_the_disk_does_not_put_off_the_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, moments, commit = [0.0], list[float](), Store.commit

    def ticking() -> float:
        now[0] += 1.0
        return now[0]

    def stalling(store: Store, *arguments: Any, **options: Any) -> None:
        commit(store, *arguments, **options)
        now[0] += 1e6 if len(moments) in (0, 3) else 0.0
        moments.append(now[0])

    monkeypatch.setattr(loop, "monotonic", ticking)
    monkeypatch.setattr(Store, "commit", stalling)
    execute(Plan(idle(aggregations=400), (0,), tmp_path), new=True)
    waits = np.diff(moments)
    assert waits[2] > 1e6 and len(waits) > 5 and np.delete(waits, 2).max() < 150, "a checkpoint takes one second"
