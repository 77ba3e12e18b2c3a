"""The preset flicker, whose clients come and go: what is claimed of it, and how runs and audits of it are shown."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from matplotlib.figure import Figure

from fairlag.analyse import fairness
from fairlag.analyse.audit import audit
from fairlag.analyse.compare import compare
from fairlag.analyse.evidence import Influence
from fairlag.analyse.trial import Trial, observe
from fairlag.lab.experiment import Experiment, load, parse
from fairlag.lab.runs import runs
from fairlag.lab.simulate import simulate
from fairlag.report.answer import answer
from tests.support.command import Call

PER_TIME = {
    "Buffered FedAvg": (1.15, 1.13, 0.15),
    "FedStaleWeight": (1.09, 1.12, 0.45),
    "FairShare by account": (1.01, 1.01, 0.95),
}
"""Influence per time present of clients that are always there, of fast and of slow ones there a fifth of the time: by
another simulation, of which only the mean lengths of presence and absence are not known."""


def flicker(*labels: str) -> Experiment:
    return load("flicker").only(list(labels))


@pytest.mark.parametrize("label", PER_TIME)
def test_influence_per_time_present(label: str) -> None:
    experiment = flicker(label)
    aggregations = experiment.aggregations
    seen = [observe(experiment, Trial(0, seed, aggregations, None)) for seed in range(2)]
    member, names = experiment.fleet().group_of, ["always", "fast", "slow"]
    groups = [
        fairness.by_group(member, names, each.updates, each.weights, each.staleness, presence=each.presence)
        for each in seen
    ]
    found = np.mean([[group.per_presence for group in each] for each in groups], axis=0)
    assert found.tolist() == pytest.approx(PER_TIME[label], abs=0.07)
    if label == "FairShare by account":
        assert found.tolist() == pytest.approx([1, 1, 1], abs=0.07)
        assert np.mean([each.weights.sum() / each.aggregations for each in seen]) == pytest.approx(1, abs=0.01)


def test_an_audit_shows_influence_beside_entitlement(call: Call) -> None:
    brief = ["--aggregations", "1500", "--seeds", "1", "--incentive-updates", "1", "--workers", "1"]
    labels = ["FairShare by gaps", "FairShare by account"]
    done = call("audit", "flicker", *(part for label in labels for part in ("--strategy", label)), *brief)
    assert done.code == 0 and max(map(len, done.out.splitlines())) <= 80
    head = next(line.split() for line in done.out.splitlines() if line.startswith("group"))
    assert head == ["group", "clients", "share", "influence", "entitled", "per", "time", "staleness", "throttling"]
    assert "Jain÷: Jain index of influence ÷ entitlement" in done.out and "entitled: its share" in done.out
    found = audit(flicker(*labels).checked(aggregations=1500), seeds=1, incentive_updates=1)
    gaps, account = found
    assert gaps.comes_and_goes and account.jain_entitled > 0.9 > 0.8 > gaps.jain_entitled
    assert gaps.jain > account.jain  # by the plain index, who is there a fifth of the time would be owed as much
    assert sum(group.entitled for group in account.groups) == pytest.approx(1)
    for group in account.groups:
        numbers = group.as_json(tried=False)
        assert (numbers["entitled"], numbers["influence_per_presence"]) == pytest.approx(
            (group.entitled, group.per_presence), abs=1e-6
        )
    always = gaps.groups[0]
    assert answer(found)[0].startswith("FairShare by account is the fairest (Jain index of influence ÷ entitlement ")
    assert f"{always.influence:.3f} of all, while {always.entitled:.3f} would be fair" in " ".join(answer(found))
    assert Influence.of_audit(gaps).entitled.tolist() == gaps.entitlements[0].tolist()


def test_influence_per_time_present_is_the_mean_over_seeds_in_audits_and_comparisons(tmp_path: Path) -> None:
    groups = [
        {"group": "always", "count": 2, "delay": "uniform(1, 2)"},
        {"group": "seldom", "count": 1, "delay": "1", "availability": "alternating(exponential(20), exponential(60))"},
    ]
    uses = [{"use": "buffered_fedavg", "buffer": 2}]
    experiment = parse({"name": "mean", "aggregations": 60, "clients": groups, "strategies": uses})
    (audited,) = audit(experiment, seeds=3, incentive_updates=1)
    made = [simulate(experiment, seed=experiment.seed + each, out=tmp_path / str(each)) for each in range(3)]
    (compared,) = compare(made)
    for mine, theirs in zip(audited.groups, compared.groups, strict=True):
        assert mine.per_presence == pytest.approx(theirs.per_presence.mean)


@contextmanager
def kept_figures() -> Iterator[list[Figure]]:
    kept: list[Figure] = []
    save = Figure.savefig

    def note(figure: Figure, *arguments: object, **options: object) -> None:
        kept.append(figure)
        save(figure, *arguments, **options)  # type: ignore[arg-type]

    with patch.object(Figure, "savefig", note):
        yield kept


def test_runs_are_compared_and_drawn_beside_entitlement(tmp_path: Path, call: Call) -> None:
    out = tmp_path / "runs"
    labels = ["Buffered FedAvg", "FairShare by account"]
    chosen = [part for label in labels for part in ("--strategy", label)]
    done = call("run", "flicker", *chosen, "--aggregations", "300", "--out", str(out), "--workers", "1")
    assert done.code == 0
    for words in ("entitled", "Jain÷", "per time: its influence per unit of time present"):
        assert words in done.out
    *lines, _ = done.out.splitlines()  # the last one is as long as the names of folders are
    assert max(map(len, lines)) <= 80
    found = compare(runs(out))
    for each in found:
        assert each.comes_and_goes and each.evenness == each.jain_entitled
        assert sum(group.entitled.mean or 0 for group in each.groups) == pytest.approx(1)
    with kept_figures() as drawn:
        picture = tmp_path / "influence.svg"
        assert call("figure", str(out), "--kind", "influence", "--out", str(picture)).code == 0
    for panel, each in zip(drawn[0].axes, found, strict=True):
        times = [f"{group.per_presence.mean:.2f}" for group in each.groups]
        assert [text.get_text() for text in panel.texts] == times
        assert panel.get_title("right") == f"Jain {each.jain.mean:.3f}, {each.jain_entitled.mean:.3f}"
