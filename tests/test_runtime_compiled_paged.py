"""Runs that learn by compiled loops: every row, score and byte is that of the simulation, event by event."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fairlag import zoo
from fairlag.core.server import Server
from fairlag.core.state import State, pack
from fairlag.core.strategy import Strategy
from fairlag.core.types import Row
from fairlag.errors import DivergedError, InputError, Interrupted, StrategyError
from fairlag.execute.serial import Serial
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse as delay
from fairlag.lab import resources as shared
from fairlag.lab import simulate
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.timeline import Timeline, virtual_time
from fairlag.learn.learner import Learner
from fairlag.learn.placement import Placement
from fairlag.rules import admit, apply, edit, reduce, trigger, weigh
from fairlag.rules.local import Local, log_delay
from fairlag.runtime import virtual
from fairlag.runtime.compiled import moment, paged
from fairlag.runtime.compiled.paged import PagedSimulation, known
from fairlag.runtime.virtual import Simulation
from tests.support.compiled_worlds import worlds
from tests.support.edits import edited
from tests.support.learning import blueprint, data, first
from tests.support.resuming import CtrlC, contents, killed_again_and_again

ONE_BY_ONE = zoo.async_fedavg()
STRATEGIES: dict[str, Strategy] = {
    "fedstaleweight": zoo.fedstaleweight(buffer=4),
    "a window": zoo.fedstaleweight(buffer=4, window=3),
    "fairshare": zoo.fairshare(buffer=3, lr=0.5),
    "by account": zoo.fairshare(
        buffer=3, estimator="account", cap=2.0, importance="examples", limit=0.3, reward=0.2, most=0.4, entitled="known"
    ),
    "by group": zoo.fairshare(
        buffer=3, estimator="account", cap=2.0, importance={"fast": 0.5, "slow": 3.0}, limit=0.3, fresh=False
    ),
    "rate tracking": zoo.rate_tracking(buffer=5, fresh=False),
    "one by one": ONE_BY_ONE,
    "by examples": replace(zoo.buffered_fedavg(buffer=4), weigh=weigh.by_examples),
    "fedbuff": zoo.fedbuff(buffer=3, concurrency=4),
    "places and fresh": zoo.exponential(buffer=4, concurrency=6),
    "a pull": replace(zoo.buffered_fedavg(buffer=4), local=Local(prox=0.3)),
}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Short runs and short pages are enough; and whoever was engaged is let go."""
    engaged, begin, close = list[Serial](), Serial.__init__, Serial.close

    def noted(self: Serial, *arguments: Any) -> None:
        begin(self, *arguments)
        engaged.append(self)

    monkeypatch.setattr(Serial, "__init__", noted)
    monkeypatch.setattr(paged, "_PAGE", 30)
    yield
    for each in engaged:
        close(each)


def experiment(strategy: Strategy = STRATEGIES["fedstaleweight"], **changes: Any) -> Experiment:
    tables: dict[str, Any] = {
        "name": "course",
        "aggregations": 70,
        "clients": [
            {"group": "fast", "count": 6, "delay": "uniform(1, 2)"},
            {"group": "slow", "count": 3, "delay": "exponential(9)", "steps": 3},
        ],
        "strategies": [{"use": strategy}],
        "data": {"use": "digits", "partition": "dirichlet(0.5)"},
        "model": {"use": "logistic"},
        "local": {"lr": 0.05, "momentum": 0.5},
        "evaluate": {"every": 7, "sample": 100},
    }
    tables |= changes
    return parse({**tables, "local": {"engine": "compiled", **tables["local"]}})


def made(folder: Path, chosen: Experiment, **options: Any) -> Run:
    return simulate.execute(Plan(chosen, (chosen.seed,), folder, single=True), new=True, workers=1, **options)[0]


@pytest.fixture
def event_by_event(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Makes a run by the simulation, its tasks trained by the same compiled loops."""

    def make(folder: Path, chosen: Experiment) -> Run:
        with monkeypatch.context() as patch:
            patch.setattr(paged, "known", lambda *known: None)
            return made(folder, chosen)

    return make


def check_alike(one: Run, other: Run) -> None:
    assert contents(one.folder) == contents(other.folder)
    for name in ("counts", "virtual_time", "reason", "status"):
        assert one.meta[name] == other.meta[name]


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions at which pages that were learnt by compiled loops begin."""
    begins: list[int] = []
    tell = PagedSimulation._tell

    def noted(self: PagedSimulation, merges: Any, learnt: Any) -> None:
        begins.append(merges.first)
        tell(self, merges, learnt)

    monkeypatch.setattr(PagedSimulation, "_tell", noted)
    return begins


# The same bytes


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_same_rows_scores_and_model(
    tmp_path: Path, name: str, event_by_event: Callable[..., Run], pages: list[int]
) -> None:
    chosen = experiment(STRATEGIES[name])
    run = made(tmp_path / "pages", chosen)
    assert len(pages) > 2 and run.version == 70
    check_alike(run, event_by_event(tmp_path / "events", chosen))


@pytest.mark.parametrize(
    "changes",
    [
        {"aggregations": None, "until_time": 30.0},
        {"aggregations": 1000, "until_time": 30.0},
        {"aggregations": 20, "until_time": 1000.0},
        {"model": {"use": "mlp", "hidden": 9}},
        {"local": {"steps": 4, "batch": 70, "lr": "step(0.1, every=9)", "weight_decay": 0.1}},
        {"local": {"steps": 2, "batch": 10**9, "lr": 0.1}},
    ],
    ids=["until a time", "either", "or", "two layers", "several epochs", "batches of all"],
)
def test_however_a_run_ends_and_trains(
    tmp_path: Path, changes: dict[str, Any], event_by_event: Callable[..., Run], pages: list[int]
) -> None:
    chosen = experiment(**changes)
    run = made(tmp_path / "pages", chosen)
    assert pages
    check_alike(run, event_by_event(tmp_path / "events", chosen))


def test_tasks_that_are_much_work_are_learnt_version_by_version(
    tmp_path: Path, event_by_event: Callable[..., Run], pages: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = experiment()
    monkeypatch.setattr(paged, "_WORK", 1.0)
    run = made(tmp_path / "pages", chosen)
    assert pages == list(range(1, 71))
    check_alike(run, event_by_event(tmp_path / "events", chosen))


def test_one_executor_trains_what_is_compiled_and_what_is_not() -> None:
    resources, chosen = shared.Resources(experiment()), STRATEGIES["fedstaleweight"]
    executor = resources.executor(resources.setting(0), chosen)
    assert isinstance(executor, Serial) and executor.learner.trainer is not None
    noting = replace(chosen, local=Local(losses=True))
    assert resources.executor(resources.setting(0), noting) is executor and executor.learner.trainer is None


def test_workers_make_the_same_bytes(tmp_path: Path, pages: list[int]) -> None:
    chosen = experiment()
    (other,) = simulate.execute(Plan(chosen, (0,), tmp_path / "workers", single=True), new=True, workers=2)
    assert not pages
    check_alike(made(tmp_path / "pages", chosen), other)
    assert pages


# The state of the simulation


class Bench:
    """The runs of a strategy without a store: by the simulation, or from page to page."""

    def __init__(self, chosen: Experiment) -> None:
        resources = shared.Resources(chosen)
        self.setting = resources.setting(0)
        self.experiment, self.strategy = chosen, chosen.strategy(chosen.strategies[0])
        self.executor = resources.executor(self.setting, self.strategy)

    def begin(self, *, compiled: bool) -> tuple[Server, Timeline, list[Row]]:
        chosen, setting, told = self.experiment, self.setting, list[Row]()
        server = Server(
            self.strategy,
            clients=chosen.population,
            parameters=setting.parameters,
            layout=setting.layout,
            aggregations=chosen.aggregations,
            until_time=chosen.until_time,
            examples=setting.visible,
            group_of=chosen.group_of,
            record=told.append,
        )
        timeline = virtual_time(server, chosen, setting, self.executor)
        assert isinstance(timeline, PagedSimulation)
        return server, timeline if compiled else Simulation(server, chosen.fleet(0), self.executor), told


def ended(server: Server, timeline: Timeline) -> tuple[str, dict[str, int], bytes]:
    while (stop := timeline.proceed(100)) is None:
        pass
    return stop.reason, server.counts, server.versions.newest.tobytes()


@pytest.mark.parametrize(("version", "refused"), [(14, 0), (21, 1)])
def test_whoever_refused_something_goes_on_event_by_event(version: int, refused: int) -> None:
    """A version and its time may be those of the timeline all the same."""
    slow = {"group": "slow", "count": 1, "delay": "constant(20)", "steps": 1000}
    bench = Bench(
        experiment(
            zoo.buffered_fedavg(buffer=4, fresh=False),
            clients=[{"group": "fast", "count": 4, "delay": "constant(1)", "steps": 1}, slow],
            data={"use": "digits"},
            local={"lr": 0.05, "weight_decay": 50.0},
        )
    )
    server, simulation, _ = bench.begin(compiled=False)
    while server.view.version < version:
        assert simulation.proceed(1) is None
    assert server.counts["refused"] == refused and not server.counts["buffered"]
    saved = simulation.state()
    expected = ended(server, simulation)
    other, pages, _ = bench.begin(compiled=True)
    pages.restore(saved)
    assert isinstance(pages, PagedSimulation) and pages._handed_over == bool(refused)
    assert ended(other, pages) == expected


def plainly(state: State) -> tuple[dict[str, NDArray[Any]], Any]:
    """What matters of a state: the order of heaps does not."""
    arrays, words = pack(state)
    order = np.lexsort((arrays["agenda/entries/sequence"], arrays["agenda/entries/time"]))
    for name in [name for name in arrays if name.startswith("agenda/entries/")]:
        arrays[name] = arrays[name][order]
    return {name: array for name, array in arrays.items() if "/slowest/" not in name}, json.loads(words)


def check_states(server: Server, pages: Timeline, other: Server, events: Timeline) -> None:
    """At the end of each page the two say the same of all that has happened, to the bit."""
    while (stop := pages.proceed(1)) is None:
        while other.view.version < server.view.version:
            events.proceed(1)
        assert not server.strategy.profiles or server.view.slowest == other.view.slowest
        (arrays, words), (expected, told) = plainly(pages.state()), plainly(events.state())
        assert words == told and arrays.keys() == expected.keys()
        for path, array in expected.items():
            assert arrays[path].dtype == array.dtype and arrays[path].tobytes() == array.tobytes(), path
    assert ended(server, pages) == ended(other, events) and stop.reason == ended(other, events)[0]


def rows(told: list[Row]) -> list[Any]:
    return [[each.tolist() if isinstance(each, np.ndarray) else each for each in row] for row in told]


@pytest.mark.parametrize("until_time", [None, 500.0])
@pytest.mark.parametrize("name", STRATEGIES)
def test_between_pages_the_state_is_that_of_the_simulation(
    name: str, until_time: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (virtual, moment):
        monkeypatch.setattr(module, "STRETCH", 50)
    bench = Bench(experiment(STRATEGIES[name], until_time=until_time))
    (server, pages, told), (other, events, expected) = bench.begin(compiled=True), bench.begin(compiled=False)
    check_states(server, pages, other, events)
    assert rows(told) == rows(expected)


@settings(max_examples=30, deadline=None)
@given(worlds(counted=True), st.integers(0, 3))
def test_so_it_is_for_whatever_fleet_and_composition(world: tuple[Fleet, Strategy], seed: int) -> None:
    fleet, strategy = world
    spec = known(strategy, fleet, 650)
    assume(spec is not None)
    assert spec is not None
    bounds = np.linspace(0, 80, fleet.clients + 1).astype(np.int64)
    examples, steps = np.diff(bounds), np.array(fleet.steps)
    design = replace(blueprint("logistic"), compiled=True)
    executor = Serial(design, data(), places := Placement(np.arange(80), bounds, np.arange(80, 120), steps))
    executor.begin(seed, places, strategy.local)
    sides: list[Any] = []
    for _ in range(2):
        told, given = list[Row](), list[Any]()
        server = Server(
            strategy,
            clients=fleet.clients,
            parameters=first(design, seed),
            aggregations=24,
            seed=seed,
            examples=examples,
            group_of=fleet.group_name,
            record=told.append,
            on_version=lambda *version, given=given: given.append((*version[:2], version[2].tobytes())),
        )
        sides.append((server, Simulation(server, fleet, executor), told, given))
    (server, simulation, told, given), (other, events, expected, wanted) = sides
    until = 24, None
    pages = PagedSimulation(
        spec, simulation, server, fleet, executor.learner, seed=seed, until=until, examples=examples
    )
    check_states(server, pages, other, events)
    assert rows(told) == rows(expected) and len(told) == 1 + 24
    assert given == wanted and len(given) == 24
    executor.close()


@pytest.mark.parametrize("name", ["fedstaleweight", "by account", "one by one", "fedbuff"])
def test_whoever_saved_a_run_anybody_goes_on_with_it(name: str) -> None:
    """After so many events, at the end of pages and in the middle of versions."""
    bench = Bench(experiment(STRATEGIES[name]))
    expected = ended(*bench.begin(compiled=False)[:2])
    for saver, events in [(True, 1), (True, 3), *((False, count) for count in (0, 1, 5, 27, 28, 29, 30, 200))]:
        _, timeline, _ = bench.begin(compiled=saver)
        for _ in range(events):
            timeline.proceed(1)
        state = timeline.state()
        for compiled in (True, False):
            server, other, _ = bench.begin(compiled=compiled)
            other.restore(state)
            assert ended(server, other) == expected


def test_whoever_goes_on_between_pages_goes_on_by_pages(pages: list[int]) -> None:
    bench = Bench(experiment())
    _, timeline, _ = bench.begin(compiled=True)
    for _ in range(3):
        timeline.proceed(1)
    _, other, _ = bench.begin(compiled=True)
    other.restore(timeline.state())
    del pages[:]
    other.proceed(1)
    assert pages == [3 * 7 + 1]  # a page has 30 // 4 versions


# Interrupted, killed, and resumed


def stopped(folder: Path, chosen: Experiment) -> Plan:
    """A run that was interrupted in the middle."""
    plan = Plan(chosen, (0,), folder, single=True)
    with pytest.raises(Interrupted):
        simulate.execute(plan, new=True, workers=1, watch=CtrlC(21))
    return plan


def test_ctrl_c_and_resume(tmp_path: Path, pages: list[int]) -> None:
    chosen = experiment()
    plan = stopped(tmp_path / "stopped", chosen)
    (run,) = simulate.execute(plan, workers=1)
    assert sorted(set(pages)) == pages and len(pages) == 10  # nothing is learnt twice
    check_alike(run, made(tmp_path / "whole", chosen))


def test_without_numba_it_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = stopped(tmp_path / "stopped", experiment())
    monkeypatch.setitem(sys.modules, "numba", None)
    sentence = r"^engine = \"compiled\" in \[local\] needs the extra `fast`: pip install 'fairlag\[fast\]'$"
    with pytest.raises(InputError, match=sentence):
        simulate.execute(plan, workers=1)
    with pytest.raises(InputError, match=sentence):
        made(tmp_path / "new", experiment())
    assert not (tmp_path / "new").exists()


def test_what_an_older_fairlag_compiled_unasked_is_not_continued(tmp_path: Path) -> None:
    """It noted no engine, but the version of numba, or "none" if it was not installed."""
    chosen = experiment(local={"lr": 0.05, "engine": "standard"})
    plan = stopped(tmp_path / "stopped", chosen)
    with edited(plan.folder) as database:
        database.execute("DELETE FROM meta WHERE key = 'engine'")
        database.execute("INSERT INTO meta (key, value) VALUES ('numba', '\"0.63.0\"')")
    with pytest.raises(InputError, match="by an older fairlag, which used compiled training automatically"):
        simulate.execute(plan, workers=1)
    with edited(plan.folder) as database:
        database.execute("UPDATE meta SET value = '\"none\"' WHERE key = 'numba'")
    check_alike(simulate.execute(plan, workers=1)[0], made(tmp_path / "whole", chosen))


def test_the_engine_is_noted_of_a_run(tmp_path: Path) -> None:
    compiled = made(tmp_path / "compiled", experiment())
    assert (compiled.meta["engine"], compiled.meta["numba"]) == ("compiled", numba.__version__)
    assert compiled.settings["local"]["engine"] == "compiled"
    losses = made(tmp_path / "losses", experiment(replace(STRATEGIES["fedstaleweight"], local=Local(losses=True))))
    assert losses.meta["engine"] == "standard" and "numba" not in losses.meta
    standard = made(tmp_path / "standard", experiment(local={"lr": 0.05, "engine": "standard"}))
    assert standard.meta["engine"] == "standard" and "engine" not in standard.settings["local"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "use",
    [
        {"use": "fedstaleweight", "buffer": 4},
        {"use": "fairshare", "buffer": 4, "estimator": "account", "cap": 2.0, "limit": 0.3, "importance": "examples"},
    ],
    ids=["fedstaleweight", "account"],
)
def test_a_run_killed_again_and_again_ends_with_the_same_bytes(tmp_path: Path, use: dict[str, Any]) -> None:
    chosen = experiment(aggregations=20_000).checked(strategies=(use,))
    killed = Plan(chosen, (0,), tmp_path / "killed")
    killed.save()
    assert killed_again_and_again(killed.folder, 1) >= 3
    (run,) = simulate.execute(killed, workers=1)
    check_alike(run, made(tmp_path / "whole", chosen))


# What only the simulation knows


@pytest.mark.parametrize("lr", [1e39, "step(0.1, every=8, factor=1e8)"], ids=["at once", "after some pages"])
def test_training_that_diverges_ends_as_in_the_simulation(
    tmp_path: Path, lr: Any, event_by_event: Callable[..., Run], pages: list[int]
) -> None:
    chosen = experiment(local={"lr": lr, "steps": 2}, aggregations=400)
    said = []
    for name, make in (("pages", made), ("events", event_by_event)):
        with pytest.raises(DivergedError) as caught:
            make(tmp_path / name, chosen)
        said.append(str(caught.value))
    assert said[0] == said[1] and bool(pages) == isinstance(lr, str)


def test_weights_that_are_refused_are_refused_as_in_the_simulation(
    tmp_path: Path, event_by_event: Callable[..., Run]
) -> None:
    chosen = experiment(replace(zoo.buffered_fedavg(buffer=4), weigh=weigh.divided(weigh.uniform, 1e-320)))
    said = []
    for name, make in (("pages", made), ("events", event_by_event)):
        with np.errstate(all="ignore"), pytest.raises(StrategyError) as caught:
            make(tmp_path / name, chosen)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_what_would_be_refused_is_left_to_the_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: list[int]
) -> None:
    chosen = experiment()
    whole = made(tmp_path / "whole", chosen)
    prepared = Learner.prepared
    monkeypatch.setattr(
        Learner, "prepared", lambda self, *tasks: None if tasks[2].max() > 30 else prepared(self, *tasks)
    )
    del pages[:]
    check_alike(made(tmp_path / "handed over", chosen), whole)
    assert max(pages) == 22


def test_clients_without_examples_would_be_refused() -> None:
    places = Placement(np.arange(80), np.array([0, 80, 80]), np.arange(80, 120), np.zeros(2, np.int64))
    by = Learner(replace(blueprint("logistic"), compiled=True), data().inputs, data().labels, places)
    nobody = np.zeros(1, np.int64)
    assert by.prepared(np.array([0]), nobody, nobody) is not None and by.prepared(np.array([1]), nobody, nobody) is None


PLAIN = zoo.buffered_fedavg(buffer=3)


@pytest.mark.parametrize(
    "strategy",
    [
        zoo.fedasync(),
        zoo.fedavg(cohort=3),
        zoo.fedfix(),
        replace(PLAIN, admit=admit.max_staleness(9)),
        replace(PLAIN, edit=edit.whole_models),
        replace(PLAIN, reduce=reduce.trimmed_mean(0.1)),
        replace(PLAIN, apply=apply.momentum(0.5)),
        replace(PLAIN, apply=apply.chain(apply.scale(0.5), apply.scale(2.0))),
        replace(PLAIN, local=Local(pace=log_delay)),
        replace(PLAIN, local=Local(losses=True)),
        replace(PLAIN, trigger=trigger.everyone()),
        zoo.ringmaster(),
    ],
    ids=str,
)
def test_what_they_do_not_know_is_left_to_the_simulation(strategy: Strategy) -> None:
    assert known(strategy, Fleet([Group("all", 9, delay("uniform(1, 2)"))], seed=0), 650) is None


@pytest.mark.parametrize(
    ("clients", "size", "fits"), [(2048, 650, True), (2049, 650, False), (270, 60_000, True), (290, 60_000, False)]
)
def test_fleets_and_models_too_large_for_a_page_are_left_to_the_simulation(clients: int, size: int, fits: bool) -> None:
    fleet = Fleet([Group("all", clients, delay(1))], seed=0)
    assert (known(PLAIN, fleet, size) is not None) == fits


def test_only_what_is_asked_for_and_known_is_compiled() -> None:
    strategy = STRATEGIES["fedstaleweight"]
    assert shared.Resources(experiment()).is_compiled(strategy)
    assert not shared.Resources(experiment(local={"engine": "standard"})).is_compiled(strategy)
    assert not shared.Resources(experiment(model={"use": "mlp", "hidden": 2000})).is_compiled(strategy)
    assert not shared.Resources(experiment()).is_compiled(replace(strategy, local=Local(losses=True)))


def overloads() -> dict[str, int]:
    """For how many kinds of arguments each function that numba knows of is compiled."""
    modules = {name: vars(module) for name, module in sys.modules.items() if name.startswith("fairlag")}
    parts = {f"{module}.{name}": part for module, all_of_it in modules.items() for name, part in all_of_it.items()}
    return {name: len(part.overloads) for name, part in parts.items() if hasattr(part, "py_func")}


def begin_and_go_on() -> None:
    """In a process of its own, in which nothing is compiled yet."""
    paged._PAGE = 30
    server, pages, _ = Bench(experiment()).begin(compiled=True)
    before = overloads()
    entered = ("learn.kernel.train", "runtime.compiled.kernel.proceed", "runtime.compiled.sums._sum")
    assert all(before[f"fairlag.{name}"] for name in entered)
    ended(server, pages)
    assert server.view.version == 70 and overloads() == before


def test_nothing_is_compiled_once_a_run_has_begun() -> None:
    """Where a Ctrl-C would have to wait for it."""
    script = f"from {__name__} import begin_and_go_on; begin_and_go_on()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
