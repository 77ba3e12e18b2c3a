"""The zoo: every algorithm through a scripted timeline with hand-computed weights, and the limits that coincide."""

import inspect
from itertools import product

import pytest

from fairlag import zoo
from fairlag.core.strategy import Strategy
from fairlag.errors import StrategyError
from fairlag.rules.rule import traits
from tests.support.scenes import Scene, one_late, vec

EQUAL = [0.5, 0.5]
WITH_LR = [name for name, each in zoo.ALGORITHMS.items() if "lr" in each.parameters]
BUFFERED = [name for name, each in zoo.ALGORITHMS.items() if "buffer" in each.parameters]

# The weights of the five aggregations of `one_late`; its docstring lists who is merged, and how stale.
TIMELINES: list[tuple[Strategy, list[list[float]]]] = [
    (zoo.buffered_fedavg(buffer=2), [EQUAL] * 5),
    # a = 2 · mean + 1 with the means (2, 0), (3/2, 1/3), (4/3, 1/4)
    (zoo.fedstaleweight(buffer=2), [EQUAL, EQUAL, [5 / 6, 1 / 6], [12 / 17, 5 / 17], [22 / 31, 9 / 31]]),
    # a = mean + 1
    (
        zoo.fedstaleweight(buffer=2, scaling="algorithm1"),
        [EQUAL, EQUAL, [3 / 4, 1 / 4], [15 / 23, 8 / 23], [28 / 43, 15 / 43]],
    ),
    # a = 2 · mean + 1 with the means of the last two (2, 0), (3/2, 1/2), (1, 1/2): the 2 has left in the end
    (zoo.fedstaleweight(buffer=2, window=2), [EQUAL, EQUAL, [5 / 6, 1 / 6], [2 / 3, 1 / 3], [3 / 5, 2 / 5]]),
    # a = the newest staleness alone · 2 + 1
    (zoo.fedstaleweight(buffer=2, window=1), [EQUAL, EQUAL, [5 / 6, 1 / 6], EQUAL, EQUAL]),
    # α = gap / (3 · 2) with the gaps (1, 2), (3/2, 4/2), (5, 6/3), (7/2, 8/3), (9/3, 10/4)
    (
        zoo.fairshare(buffer=2, estimator="gap", cap=None),
        [[1 / 6, 1 / 3], [1 / 4, 1 / 3], [5 / 6, 1 / 3], [7 / 12, 4 / 9], [1 / 2, 5 / 12]],
    ),
    # the same, its totals 1/2, 7/12, 7/6, 37/36, 11/12 at most 1
    (
        zoo.fairshare(buffer=2, estimator="gap", cap=1.0),
        [[1 / 6, 1 / 3], [1 / 4, 1 / 3], [5 / 7, 2 / 7], [21 / 37, 16 / 37], [1 / 2, 5 / 12]],
    ),
    (
        zoo.fairshare(buffer=2, estimator="gap", normalise="buffer"),
        [[1 / 3, 2 / 3], [3 / 7, 4 / 7], [5 / 7, 2 / 7], [21 / 37, 16 / 37], [6 / 11, 5 / 11]],
    ),
    # α = (2 · mean + 1) / (3 · 2), capped at 1.5
    (
        zoo.fairshare(buffer=2, estimator="staleness"),
        [[1 / 6, 1 / 6], [1 / 6, 1 / 6], [5 / 6, 1 / 6], [2 / 3, 5 / 18], [11 / 18, 1 / 4]],
    ),
    # newcomers a half; 2 is one in the third version, whose other half 0 and 1 share; then a third each
    (zoo.fairshare(buffer=2, estimator="account"), [EQUAL, EQUAL, [1 / 2, 1 / 4], [1 / 3, 7 / 12], [1 / 3, 2 / 3]]),
    # the same, but of each version a quarter stays in the accounts
    (
        zoo.fairshare(buffer=2, estimator="account", cap=0.75),
        [[3 / 8, 3 / 8], [3 / 8, 3 / 8], [3 / 8, 3 / 8], [33 / 124, 15 / 31], [1173 / 3920, 1767 / 3920]],
    ),
    # γ^τ with τ = (2, 0), then equal
    (zoo.exponential(gamma=0.5, buffer=2), [EQUAL, EQUAL, [1 / 5, 4 / 5], EQUAL, EQUAL]),
    (zoo.exponential(gamma=3.0, buffer=2), [EQUAL, EQUAL, [9 / 10, 1 / 10], EQUAL, EQUAL]),
    # the last arrival / the number of updates: (1, 2), (3/2, 4/2), (5, 6/3), (7/2, 8/3), (9/3, 10/4)
    (
        zoo.rate_tracking(buffer=2),
        [[1 / 3, 2 / 3], [3 / 7, 4 / 7], [5 / 7, 2 / 7], [21 / 37, 16 / 37], [6 / 11, 5 / 11]],
    ),
]
IDS = [
    f"{place}-{strategy.trigger.label}-{traits(strategy.weigh).label}" for place, (strategy, _) in enumerate(TIMELINES)
]


@pytest.mark.parametrize(("strategy", "weights"), TIMELINES, ids=IDS)
def test_a_scripted_timeline_gives_the_weights_computed_by_hand(strategy: Strategy, weights: list[list[float]]) -> None:
    scene = one_late(strategy)
    assert scene.weights == [pytest.approx(each, rel=1e-14) for each in weights]
    senders = [[0, 1], [0, 1], [2, 0], [2, 1], [2, 0]]
    assert [[task.client for task in record.tasks] for record in scene.merged] == senders
    assert [r.staleness.tolist() for r in scene.merged] == [[0, 0], [0, 0], [2, 0], [1, 1], [1, 1]]
    totals = [0.0, 0.0, 0.0]
    for clients, pair in zip(senders, weights, strict=True):
        for client, weight in zip(clients, pair, strict=True):
            totals[client] += weight
    assert scene.parameters == pytest.approx(totals, rel=1e-6)
    assert scene.server.view.weight_sums.tolist() == pytest.approx(totals, rel=1e-14)


def test_the_server_learning_rate_scales_the_step_and_not_the_weights() -> None:
    scene = Scene(zoo.buffered_fedavg(buffer=2, lr=0.5), 2, parameters=vec(1, 1))
    scene.arrive(0, 4, 0)
    scene.arrive(1, 0, 8)
    assert scene.parameters == [2.0, 3.0] and scene.weights == [EQUAL]


@pytest.mark.parametrize("name", ["buffered_fedavg", "fedstaleweight", "fairshare", "exponential", "rate_tracking"])
def test_the_weightings_of_one_loop_also_go_with_few_clients_at_once(name: str) -> None:
    make = zoo.ALGORITHMS[name].make
    scene = Scene(make(buffer=2, concurrency=3), 5)
    first, second, _ = scene.tasks
    scene.arrive(first)  # its place goes to one of the two that are idle, as it knows the newest version
    assert len(scene.server.running) == 3 and len(scene.tasks) == 4 and scene.tasks[first].ordinal == 0
    scene.arrive(second)
    assert scene.server.view.version == 1 and len(scene.server.running) == 3
    assert make(concurrency=3, fresh=False).select.label == "concurrency(3)"
    assert make().select.label == "all_idle(fresh=True)"


def test_a_concurrency_of_none_at_all_is_refused() -> None:
    with pytest.raises(StrategyError, match="the concurrency is 0, it must be"):
        zoo.fedstaleweight(concurrency=0)


def test_fedbuff_weighs_each_update_by_its_own_staleness() -> None:
    # Three places for three clients. Without `fresh`, clients 0 and 1 go on at once; client 2 stays behind.
    scene = Scene(zoo.fedbuff(buffer=2, concurrency=3), 3, parameters=vec(0, 0))
    for client, x in ((0, 8), (1, 8), (0, 8), (1, 8), (0, 8), (1, 8)):
        scene.arrive(client, x, 0)
    assert scene.merged[-1].staleness.tolist() == [1, 0]  # client 0 is handed each version one event too early
    before = scene.parameters
    scene.arrive(2, 8, 8)  # from version 0, at version 3
    scene.arrive(0, 0, 8)  # from version 2, at version 3
    assert scene.merged[-1].staleness.tolist() == [3, 1]
    assert scene.weights[-1] == pytest.approx([0.5 * 4**-0.5, 0.5 * 2**-0.5], rel=1e-15)
    assert scene.parameters == pytest.approx([before[0] + 2, 2 + 4 * 2**-0.5], rel=1e-6)


def test_fedbuff_refuses_what_is_staler_than_allowed() -> None:
    scene = Scene(zoo.fedbuff(buffer=1, concurrency=2, max_staleness=1), 2, parameters=vec(0))
    scene.arrive(0, 1)
    scene.arrive(0, 1)
    commands = scene.arrive(1, 1)
    assert [(ended.task.client, ended.reason) for ended in scene.ended] == [(1, "staler than 1")]
    assert scene.parameters == [2.0] and scene.tasks[1].version == 2 and commands == [scene.tasks[1]]


def test_fedavg_weighs_by_examples() -> None:
    scene = Scene(zoo.fedavg(cohort=2), 2, parameters=vec(0, 0))
    scene.arrive(1, 0, 8, examples=30)
    scene.arrive(0, 8, 0, examples=10)
    assert scene.weights == [[0.75, 0.25]] and scene.parameters == [2.0, 6.0]


# The steps of three rounds are 7, −5 and 35.
@pytest.mark.parametrize(
    ("strategy", "ends"),
    [
        (zoo.fedavgm(cohort=2, lr=0.5, beta=0.5), [3.5, 3.5 - 0.75, 3.5 - 0.75 + 17.125]),
        (
            zoo.fedadagrad(cohort=2, lr=2.0, beta1=0.5, eps=1.0),
            [7 / (50**0.5 + 1), 7 / (50**0.5 + 1) - 1.5 / (75**0.5 + 1)],
        ),
        (zoo.fedadam(cohort=2, lr=3.0, beta1=0.5, beta2=0.5, eps=1.0), [1.75, 1.375, 1.375 + 51.375 / 26]),
        (zoo.fedyogi(cohort=2, lr=3.0, beta1=0.5, beta2=0.5, eps=1.0), [10.5 / (25.5**0.5 + 1)]),
    ],
    ids=["fedavgm", "fedadagrad", "fedadam", "fedyogi"],
)
def test_a_server_rule_takes_the_step_of_fedavg(strategy: Strategy, ends: list[float]) -> None:
    scene, found = Scene(strategy, 2, parameters=vec(0)), []
    for step in (7, -5, 35)[: len(ends)]:
        scene.arrive(0, 2 * step, examples=10)
        scene.arrive(1, 2 * step / 3, examples=30)
        found += scene.parameters
    assert found == pytest.approx(ends, rel=1e-6)
    assert scene.weights == [[0.25, 0.75]] * len(ends)


def test_fedavgm_without_momentum_is_fedavg_bit_for_bit() -> None:
    ends = []
    for strategy in (zoo.fedavg(cohort=2, lr=0.3), zoo.fedavgm(cohort=2, lr=0.3, beta=0.0)):
        scene = Scene(strategy, 2, parameters=vec(1, -0.0))
        for client, x in ((0, 0.1), (1, 0.7), (1, -3.3), (0, 1e-8), (0, 5), (1, 5)):
            scene.arrive(client, x, -0.0, examples=1 + client)
        ends.append(scene.server.versions.newest.tobytes())
    assert ends[0] == ends[1]


@pytest.mark.parametrize("name", ["fedavgm", "fedadagrad", "fedadam", "fedyogi"])
def test_rounds_are_those_of_fedavg(name: str) -> None:
    options = {"cohort": 4, "over": 0.5, "deadline": 7.0}
    strategy, rounds = zoo.ALGORITHMS[name].make(**options), zoo.ALGORITHMS["fedavg"].make(**options)
    assert repr(strategy).partition(", apply=")[0] == repr(rounds).partition(", apply=")[0]


@pytest.mark.parametrize("window", [None, 2])
def test_fedstaleweight_with_a_buffer_of_one_is_buffered_fedavg_bit_for_bit(window: int | None) -> None:
    plain, weighted = (
        one_late(strategy) for strategy in (zoo.buffered_fedavg(buffer=1), zoo.fedstaleweight(buffer=1, window=window))
    )
    assert weighted.weights == plain.weights == [[1.0]] * 10
    assert weighted.server.versions.newest.tobytes() == plain.server.versions.newest.tobytes()
    assert max(record.staleness[0] for record in plain.merged) > 0


def test_fairshare_by_staleness_and_buffer_is_fedstaleweight_bit_for_bit() -> None:
    ours = one_late(zoo.fairshare(buffer=2, estimator="staleness", normalise="buffer"))
    theirs = one_late(zoo.fedstaleweight(buffer=2))
    assert ours.weights == theirs.weights
    assert ours.server.versions.newest.tobytes() == theirs.server.versions.newest.tobytes()


def test_an_infinite_cap_is_no_cap() -> None:
    assert (
        one_late(zoo.fairshare(buffer=2, cap=float("inf"))).weights
        == one_late(zoo.fairshare(buffer=2, cap=None)).weights
    )


@pytest.mark.parametrize("name", [name for name in BUFFERED if zoo.ALGORITHMS[name].make().apply.label == "scale(1.0)"])
def test_equally_fresh_updates_make_an_equal_step_that_is_not_zero(name: str) -> None:
    scene = Scene(zoo.ALGORITHMS[name].make(buffer=3), 3, parameters=vec(0, 0, 0))
    for client in range(3):
        scene.arrive(client, 3, 3, 3, at=1.0)
    (weights,) = scene.weights
    assert weights == pytest.approx([1 / 3, 1 / 3, 1 / 3]) and scene.parameters == pytest.approx([3, 3, 3])


def test_gaps_are_equal_in_expectation_only() -> None:
    scene = Scene(zoo.fairshare(buffer=3, estimator="gap"), 3, parameters=vec(0, 0, 0))
    for client in range(3):  # the first gaps are 1, 2 and 3
        scene.arrive(client, 3, 3, 3, at=1.0)
    assert scene.weights[0] == pytest.approx([1 / 9, 2 / 9, 3 / 9])


def test_every_algorithm_is_registered_under_its_own_name() -> None:
    assert set(zoo.ALGORITHMS) == {
        *("fedavg", "fedprox", "fedavgm", "fednova", "fedadagrad", "fedadam", "fedyogi", "safa"),
        *("fedasync", "async_fedavg", "fedbuff", "fedfix", "asyncfeded", "asofed", "pisces"),
        *("buffered_fedavg", "fedstaleweight", "fairshare", "exponential", "rate_tracking"),
        *("delay_adaptive", "rennala", "malenia", "ringmaster", "ringleader"),
        *("fadas", "fedcompass", "qfedavg", "fedfa"),
        *("fedau", "mifa", "fedvarp", "fedstale", "ca2fl", "ace", "area", "scaffold", "buffered_scaffold"),
    }
    for name, algorithm in zoo.ALGORITHMS.items():
        assert algorithm.name == name and algorithm.make is getattr(zoo, name)
        assert algorithm.description.endswith(".") and algorithm.title
        assert algorithm.formula and algorithm.departs and algorithm.reference
        assert all(each.kind is inspect.Parameter.KEYWORD_ONLY for each in algorithm.parameters.values())
        assert isinstance(algorithm.make(), Strategy)


@pytest.mark.parametrize("name", BUFFERED)
def test_an_empty_buffer_is_refused_by_name_and_value(name: str) -> None:
    with pytest.raises(StrategyError, match="buffer is 0, it must be"):
        zoo.ALGORITHMS[name].make(buffer=0)


@pytest.mark.parametrize(("name", "lr"), list(product(WITH_LR, [0.0, -0.5, float("nan"), float("inf")])))
def test_a_learning_rate_that_is_not_positive_is_refused(name: str, lr: float) -> None:
    with pytest.raises(StrategyError, match=f"learning rate is {lr}, it must be a positive number"):
        zoo.ALGORITHMS[name].make(lr=lr)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("exponential", "gamma", 0.0),
        ("exponential", "gamma", -1.0),
        ("fairshare", "cap", 0.0),
        ("fairshare", "cap", float("nan")),
        ("fedstaleweight", "window", 0),
        ("fedstaleweight", "scaling", "algorithm2"),
        ("fairshare", "estimator", "clock"),
        ("fairshare", "normalise", "bufer"),
        ("fairshare", "normalise", "buffer"),
        ("fairshare", "entitled", "all"),
        ("fairshare", "limit", 0.0),
        ("fairshare", "most", 0.0),
        ("fairshare", "reward", 1.5),
        ("fedbuff", "concurrency", 0),
        ("fedbuff", "power", -0.5),
        ("fedbuff", "power", float("nan")),
        ("fedbuff", "max_staleness", -1),
        ("fedavg", "cohort", 0),
        ("fedavg", "over", -0.1),
        ("fedavg", "deadline", 0.0),
        ("fedavgm", "cohort", 0),
        ("fedavgm", "beta", 1.0),
        ("fedadagrad", "over", -0.1),
        ("fedadagrad", "beta1", 1.0),
        ("fedadam", "deadline", 0.0),
        ("fedadam", "beta2", 1.0),
        ("fedyogi", "beta1", -0.5),
        ("fedyogi", "eps", 0.0),
        ("fedprox", "mu", -0.1),
        ("fednova", "cohort", 0),
        ("safa", "share", 0.0),
        ("safa", "share", 1.5),
        ("safa", "lag", -1),
        ("safa", "deadline", 0.0),
        ("fedasync", "alpha", float("inf")),
        ("fedasync", "alpha", 0.0),
        ("fedasync", "alpha", -1.0),
        ("fedasync", "alpha", 1.5),
        ("fedasync", "staleness", "linear"),
        ("fedasync", "power", -1.0),
        ("fedasync", "slope", -1.0),
        ("fedasync", "start", float("nan")),
        ("fedasync", "prox", -0.1),
        ("fedasync", "max_staleness", -1),
        ("async_fedavg", "importance", "size"),
        ("fedfix", "interval", 0.0),
        ("fedfix", "importance", "size"),
        ("asyncfeded", "factor", 0.0),
        ("asyncfeded", "eps", 0.0),
        ("asyncfeded", "target", -1.0),
        ("asyncfeded", "gain", -1.0),
        ("asyncfeded", "steps", 0),
        ("asyncfeded", "max_gamma", 0.0),
        ("asofed", "prox", -1.0),
        ("asofed", "beta", 1.5),
        ("asofed", "attention", "soft"),
        ("fedau", "cutoff", 0),
        ("fedau", "cohort", 0),
        ("mifa", "cohort", 0),
        ("fedvarp", "deadline", 0.0),
        ("fedstale", "beta", 1.5),
        ("fedstale", "beta", float("nan")),
        ("ca2fl", "concurrency", 0),
        ("area", "concurrency", 0),
        ("scaffold", "over", -0.1),
        ("buffered_scaffold", "concurrency", 0),
        ("pisces", "concurrency", 0),
        ("pisces", "staleness_bound", 0.0),
        ("pisces", "power", -1.0),
        ("pisces", "window", 0),
        ("pisces", "explore", 1.5),
        ("pisces", "decay", -0.5),
        ("pisces", "least", 2.0),
        ("pisces", "unseen", -1.0),
        ("pisces", "credit", 0),
        ("pisces", "nearby", -1),
        ("pisces", "reach", 0.0),
        ("rennala", "buffer", 0),
        ("ringmaster", "max_delay", 0),
        ("fadas", "delay_limit", -1),
        ("fadas", "beta1", 1.0),
        ("fadas", "beta2", -0.5),
        ("fadas", "eps", 0.0),
        ("fadas", "concurrency", 0),
        ("fedcompass", "min_steps", 0),
        ("fedcompass", "min_steps", 101),
        ("fedcompass", "max_steps", 19),
        ("fedcompass", "momentum", 1.5),
        ("fedcompass", "slack", 0.9),
        ("fedcompass", "power", -1.0),
        ("fedcompass", "alpha", 0.0),
        ("fedcompass", "alpha", 1.5),
        ("qfedavg", "q", -1.0),
        ("qfedavg", "local_lr", 0.0),
        ("qfedavg", "cohort", 0),
        ("fedfa", "models", 0),
    ],
)
def test_an_option_out_of_range_is_refused_in_one_sentence_with_its_value(
    name: str, option: str, value: float | str
) -> None:
    with pytest.raises(StrategyError) as caught:
        zoo.ALGORITHMS[name].make(**{option: value})
    assert str(value) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(("term", "value"), [("entitled", "known"), ("limit", 1.0), ("most", 0.5), ("reward", 0.5)])
@pytest.mark.parametrize("estimator", ["gap", "staleness"])
def test_the_terms_of_an_account_are_refused_without_one(estimator: str, term: str, value: float | str) -> None:
    with pytest.raises(
        StrategyError, match=f"{term} is {value!r}, which needs estimator = 'account', not '{estimator}'"
    ):
        zoo.ALGORITHMS["fairshare"].make(estimator=estimator, **{term: value})


def test_weights_and_history_do_not_depend_on_the_size_of_the_model() -> None:
    with_model, without = one_late(zoo.fedstaleweight(buffer=2)), Scene(zoo.fedstaleweight(buffer=2), 3)
    for client in (0, 1, 0, 1, 2, 0, 2, 1, 2, 0):
        without.arrive(client)
    assert without.weights == with_model.weights
    assert without.server.counts == with_model.server.counts
