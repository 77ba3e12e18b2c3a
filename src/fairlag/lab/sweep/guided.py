"""Guided search by Optuna: each round of settings follows from all rounds before it, and hopeless trials end early.

A round is asked for as a whole and told as a whole. So what is tried depends neither on how many trials run at the same
time nor on which ends first, and a sweep that was killed asks for the same settings again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlag.core import seeds
from fairlag.extras import optional
from fairlag.lab.sweep.result import FINISHED, STOPPED, Result
from fairlag.lab.sweep.search import ROUND
from fairlag.lab.sweep.space import Listed, Range, Setting, Space
from fairlag.lab.sweep.trial import Hopeless

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

DATABASE = "optuna.sqlite"
TRIALS = 40
"""The number of trials if none is given."""
_WORST = 1e30
"""What Optuna is told of a trial that failed or has no value: worse than any value, but finite, as it must be."""
_RANDOM = 2 * ROUND
"""The first trials are random."""


def library() -> Any:
    """Optuna, imported only when it is used."""
    optuna = optional("optuna", "sweep", "guided search")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class Guided:
    """Optuna's tree-structured Parzen estimator for one strategy, seeded anew for each round."""

    def __init__(self, space: Space, trials: int, seed: int, folder: Path, *, higher: bool) -> None:
        """The trials are also recorded in Optuna's own database in the folder, for its tools."""
        self._optuna = library()
        self._space, self._seed, self._folder, self._higher = space, seed, folder, higher
        self.total = trials
        self._distributions = {key: _distribution(domain) for key, domain in space.domains.items()}
        self._told: list[FrozenTrial] = []

    def ask(self, number: int) -> tuple[list[Setting], list[Hopeless | None]]:
        """The settings of a round, from the results of those before it."""
        optuna, count = self._optuna, min(ROUND, self.total - number * ROUND)
        address = seeds.key(self._seed, "guided", self._space.use.label, number) % 2**32
        sampler = optuna.samplers.TPESampler(seed=address, n_startup_trials=_RANDOM)
        study = self._study(self._told, sampler=sampler)
        asked = [study.ask(self._distributions).params for _ in range(max(count, 0))]
        settings = [_setting(self._space, params) for params in asked]
        return settings, [_Pruned(self._higher, tuple(self._told)) for _ in settings]

    def tell(self, number: int, settings: Sequence[Setting], results: Sequence[Result]) -> None:
        """Records a round."""
        self._told += [self._trial(setting, result) for setting, result in zip(settings, results, strict=True)]
        storage = self._optuna.storages.RDBStorage(f"sqlite:///{(self._folder / DATABASE).absolute()}")
        study = self._study([], storage=storage, study_name=self._space.use.label, load_if_exists=True)
        study.add_trials(self._told[len(study.trials) :])
        storage.remove_session()

    def _study(self, told: Sequence["FrozenTrial"], **options: Any) -> "Study":
        return _study(self._optuna, told, higher=self._higher, **options)

    def _trial(self, setting: Setting, result: Result) -> "FrozenTrial":
        """A trial in Optuna's words. Of one that was stopped, it takes the last value on the way."""
        state = self._optuna.trial.TrialState
        worst = -_WORST if self._higher else _WORST
        steps = _numbers(result.steps, higher=self._higher)
        value = (
            result.value
            if result.status == FINISHED
            else list(steps.values())[-1]
            if result.status == STOPPED
            else None
        )
        return self._optuna.trial.create_trial(  # type: ignore[no-any-return]
            state=state.PRUNED if result.status == STOPPED else state.COMPLETE,
            value=worst if value is None else value,
            params=_params(self._space, setting),
            distributions=self._distributions,
            intermediate_values=steps,
        )


@dataclass(frozen=True, slots=True)
class _Pruned:
    """Ends a trial that is worse on the way than the median of those that were made in earlier rounds."""

    higher: bool
    told: tuple["FrozenTrial", ...]

    def __call__(self, steps: Mapping[int, float | None]) -> bool:
        optuna = library()
        study = _study(optuna, self.told, higher=self.higher)
        state = optuna.trial.TrialState.RUNNING
        trial = optuna.trial.create_trial(state=state, intermediate_values=_numbers(steps, higher=self.higher))
        return bool(optuna.pruners.MedianPruner(n_startup_trials=ROUND).prune(study, trial))


def _study(optuna: Any, told: Sequence["FrozenTrial"], *, higher: bool, **options: Any) -> "Study":
    study: Study = optuna.create_study(direction="maximize" if higher else "minimize", **options)
    study.add_trials(told)
    return study


def _numbers(steps: Mapping[int, float | None], *, higher: bool) -> dict[int, float]:
    """Values on the way as Optuna takes them."""
    worst = -_WORST if higher else _WORST
    return {step: worst if value is None else value for step, value in steps.items()}


def _distribution(domain: Listed | Range) -> "BaseDistribution":
    distributions = library().distributions
    if isinstance(domain, Listed):  # by number, because Optuna takes only plain values as choices
        return distributions.CategoricalDistribution(range(len(domain.values)))  # type: ignore[no-any-return]
    if domain.kind == "integers":
        return distributions.IntDistribution(int(domain.low), int(domain.high))  # type: ignore[no-any-return]
    return distributions.FloatDistribution(domain.low, domain.high, log=domain.kind == "log")  # type: ignore[no-any-return]


def _setting(space: Space, params: Mapping[str, Any]) -> Setting:
    """What Optuna asks for, as a setting; numbers are rounded."""
    found: dict[str, object] = {}
    for key, domain in space.domains.items():
        value = params[key]
        if isinstance(domain, Listed):
            found[key] = domain.values[value]
        else:
            found[key] = value if domain.kind == "integers" else domain.rounded(value)
    return found


def _params(space: Space, setting: Setting) -> dict[str, Any]:
    """A setting as Optuna takes it."""
    return {
        key: domain.values.index(setting[key]) if isinstance(domain, Listed) else setting[key]
        for key, domain in space.domains.items()
    }
