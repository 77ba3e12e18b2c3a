"""Every defence with every algorithm: it is built and runs, or says why not; and training with it, anywhere."""

from pathlib import Path

import numpy as np
import pytest

from fairlag.core.vector import Vector
from fairlag.errors import InputError, StrategyError
from fairlag.lab import loop
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.plan import Plan
from fairlag.lab.resources import Resources
from fairlag.lab.simulate import execute
from fairlag.lab.strategies import build
from fairlag.zoo import ALGORITHMS, buffered_fedavg, defended, fairshare, fedavg, fedbuff, safa
from fairlag.zoo.defences import DEFENCES
from tests.support.experiments import fast_and_slow, small
from tests.support.played import played
from tests.support.resuming import contents, stopped_halfway

TEXTS = {
    **{"clip": "clip(1.0)", "krum": "krum(1)", "centred_clip": "centred_clip(1.0)", "basgd": "basgd(3)"},
    **{"kardam": "kardam(2)"},
}


def text(name: str) -> str:
    return TEXTS.get(name, name)


def own_step(version: int, parameters: Vector) -> Vector:
    return np.ones(parameters.size, np.float32)


@pytest.mark.parametrize("defence", DEFENCES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_it_composes_or_refuses_with_a_sentence(name: str, defence: str) -> None:
    use = small(name, 5)
    plain = build(use.pop("use"), use)
    try:
        strategy = defended(plain, text(defence))
    except StrategyError as refusal:
        assert "use a" in str(refusal)
        return
    server = played(strategy, versions=8, reference=own_step)
    assert server.view.version == 8
    assert np.isfinite(server.versions.newest).all()


@pytest.mark.parametrize(
    ("make", "defence", "sentence"),
    [
        (
            lambda: fedbuff(buffer=6),
            "krum(2)",
            "krum(2) needs at least 7 updates per version, but the strategy merges 6",
        ),
        (lambda: fedbuff(buffer=2), "median", "median needs at least 3 updates per version"),
        (lambda: fedbuff(buffer=4), "trimmed_mean", "trimmed_mean(0.2) needs at least 5 updates per version"),
        (safa, "median", "median replaces the weighted sum of a buffer, but the strategy uses averaging()"),
        (fairshare, "median", "spends accounts by weight, but median itself decides how much"),
        (fedavg, "basgd(3)", "basgd waits until every bucket has an update, but cohort(10) works in rounds"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(make: object, defence: str, sentence: str) -> None:
    with pytest.raises(StrategyError) as refusal:
        defended(make(), defence)  # type: ignore[operator]
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("defence", "sentence"),
    [
        ("krumm", "there is no defence 'krumm': did you mean 'krum'?"),
        ("median(clip)", "clip cannot be part of a defence, write a number"),
        ("0.5", "the defence is '0.5', but must be a call such as krum(f=2)"),
    ],
)
def test_what_is_no_defence_is_refused(defence: str, sentence: str) -> None:
    with pytest.raises(InputError) as refusal:
        defended(buffered_fedavg(), defence)
    assert sentence in str(refusal.value)


LENGTH = 8


def guarded(*defences: str, trusted: int | None = 60) -> Experiment:
    """Digits, of which the server holds some; one of seven clients attacks."""
    attacker = {"group": "attacker", "count": 1, "delay": "uniform(1, 2)", "behaviour": "sign_flip(10)"}
    data = {"use": "digits", "partition": "iid"} | ({} if trusted is None else {"trusted": trusted})
    return parse(
        {
            "name": "guarded",
            "aggregations": LENGTH,
            "clients": [*fast_and_slow(4, 2), attacker],
            "strategies": [{"use": "fedstaleweight", "buffer": 5, "defence": each} for each in defences],
            "data": data,
            "model": {"use": "mlp"},
            "local": {"steps": 2, "batch": 16, "lr": 0.1},
            "evaluate": {"every": 4, "sample": 100},
        }
    )


def test_workers_and_a_stop_give_the_bytes_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = guarded("zeno", "aflguard", "kardam(1)", "clip_to_median", "centred_clip(0.5)")
    plans = {how: Plan(chosen, (3,), tmp_path / how) for how in ("alone", "workers", "stopped")}
    monkeypatch.setattr(loop, "_LOOK", 0.0)
    execute(plans["alone"], new=True, workers=1)
    execute(plans["workers"], new=True, workers=2)
    stopped_halfway(plans["stopped"])
    for alone, *others in zip(*plans.values(), strict=True):
        for other in others:
            assert contents(other.folder) == contents(alone.folder), other.use.label


def test_no_client_holds_the_servers_examples() -> None:
    resources = Resources(guarded("aflguard"))
    setting = resources.setting(0)
    placement = setting.placement
    assert placement is not None
    mine = placement.of(7)
    held = np.concatenate([placement.of(client) for client in range(7)])
    assert (len(mine), len(setting.examples), setting.examples.sum()) == (60, 7, len(held))
    everything = np.concatenate([mine, held, placement.tests])
    assert sorted(everything.tolist()) == list(range(1797))
    assert np.bincount(resources.data.labels[mine]).tolist() == pytest.approx([6] * 10, abs=1)


def test_a_defence_by_a_trusted_step_needs_trusted_examples() -> None:
    with pytest.raises(InputError, match=r"compares updates with a step on .* give `trusted` in \[data\]"):
        guarded("zeno", trusted=None)


def test_more_trusted_examples_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match="trusted is 1438, but only 1438 training examples can be taken"):
        Resources(guarded("zeno", trusted=1438)).setting(0)
