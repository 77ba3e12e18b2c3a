"""The benchmark of peers: everybody is given the same work, and its tables say what was answered."""

from pathlib import Path

import pytest
from torch import nn

from benchmarks.peers import run, work
from fairlag.learn import models

SHAPES = {"fashion_cnn": (1, 28, 28), "logistic": (1, 8, 8)}


@pytest.mark.parametrize("name", SHAPES)
def test_fairlag_trains_the_same_model(name: str) -> None:
    ours = models.build(name, {}, shape=SHAPES[name], classes=10, seed=0)
    # The same function by other means: tests/test_learn_models.py compares the two to the bit.
    pooled = str(ours).replace("MaxPool2x2()", str(nn.MaxPool2d(2)))
    assert str(work.build(name)) == pooled


def test_the_clients_share_the_training_examples_by_label() -> None:
    _, labels, train = work.examples("logistic")
    shares = work.shares("logistic")
    assert sorted(place for share in shares for place in share) == list(range(train))
    held = [set(labels[share]) for share in shares]
    assert len(held) == 15 and set.union(*held[:10]) == set(range(4, 10)) and set.union(*held[10:]) == set(range(4))


def answer(updates: float, processor: float | None, evaluation: float | None) -> dict[str, object]:
    return {
        **{"updates": updates, "seconds": 2.0, "processor_seconds": processor},
        **{"evaluation_seconds": evaluation, "evaluation_examples": 1000, "versions": {"torch": "2.13.0"}},
    }


def test_a_table_has_medians_of_ratios_within_rounds_and_reasons(tmp_path: Path) -> None:
    bare, serial, flower = run.ENTRIES[0], run.ENTRIES[3], run.ENTRIES[-1]
    results = run.Results()
    results.answers[bare] = [answer(200, 1.0, 2.0), answer(100, 1.0, 2.0), answer(400, 1.0, 2.0)]
    results.answers[serial] = [answer(100, 2.0, None), answer(100, 2.0, None), answer(100, 2.0, None)]
    results.answers[flower], results.reasons[flower] = [None, None, None], "took longer than 5 s"
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- logistic: begin -->\nold\n<!-- logistic: end -->\nafter\n")
    run.write(page, "logistic", run.table(results, "logistic", 200, 3, 0.0))
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| bare loop | 1 | 100 | 1.000 | 5.0 | 500 | 1.000 |" in text
    assert "| fairlag, serial | 1 | 50.0 | 0.500 | 20.0 | – | – |" in text
    assert "| Flower, asynchronous loop | 1 + 2 actors | took longer than 5 s | | | | |" in text


def test_who_cannot_be_run_is_a_row_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = run.Entry("nobody", "", "nobody", "1")
    monkeypatch.setattr(run, "OURS", ("nobody",))
    results = run.Results()
    results.take(entry, "logistic", 10, 60.0)
    assert "failed: " in results.row(entry) and "benchmarks.peers.nobody" in results.row(entry)
