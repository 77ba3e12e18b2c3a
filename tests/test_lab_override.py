"""Changing an experiment by words: what becomes of them, and what is said of those that cannot be used."""

import pytest

from fairlag.errors import InputError
from fairlag.lab.experiment import load
from fairlag.lab.override import changed

DEMO = load("demo")


def test_every_kind_of_table_can_be_changed() -> None:
    settings = [
        "seed=3",
        "local.lr = 0.05",
        "clients.slow.count=7",
        "clients.slow.labels=[0, 1, 2, 3, 4]",
        "evaluate.every=100",
        'data.partition="dirichlet(0.3)"',
        "model.hidden=32",
    ]
    other = changed(DEMO, settings)
    assert (other.seed, other.local.lr, other.population, other.evaluate.every) == (3, 0.05, 17, 100)
    assert other.clients[1].labels == (0, 1, 2, 3, 4)
    assert other.data is not None and other.model is not None
    assert (other.data.partition, other.model.parameters) == ("dirichlet(0.3)", {"hidden": 32})


def test_nothing_changed_is_the_same() -> None:
    assert changed(DEMO, []) is DEMO
    assert changed(DEMO, [f"seed={DEMO.seed}"]) == DEMO


def test_a_strategy_is_found_by_label_or_use_and_renamed_only_if_it_had_no_name_of_its_own() -> None:
    paper = load("paper-fashion-mnist")
    by_use = changed(paper, ["strategies.fedstaleweight.window=9"])
    assert [use.parameters.get("window") for use in by_use.strategies] == [None, 9, 9, None]
    assert by_use.strategies[1].label == "FedStaleWeight (window=9)"
    label = "FedStaleWeight (scaling=algorithm1)"
    by_label = changed(paper, [f"strategies.{label}.window=9"])
    assert [use.parameters.get("window") for use in by_label.strategies] == [None, None, 9, None]
    mine = changed(DEMO, ["strategies.fairshare.label=v1.5"])
    assert changed(mine, ["strategies.v1.5.buffer=7"]).strategies[2].label == "v1.5"


def test_an_empty_value_takes_a_key_away_and_a_table_can_be_added() -> None:
    assert changed(DEMO, ["local.steps=", "local.epochs=2"]).local.epochs == 2
    racer = changed(load("racer"), ["data.use=digits", "model.use=logistic"])
    assert racer.data is not None
    assert racer.data.use == "digits"


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("local.lrr=1", "unknown key 'local.lrr': did you mean 'lr'?"),
        ("clients.slow.cout=1", "unknown key 'clients[2].cout': did you mean 'count'?"),
        ("sead=1", "unknown key 'sead': did you mean 'seed'?"),
        ("strategies.fairshare.bufer=3", "'fairshare' has no parameter 'bufer': did you mean 'buffer'?"),
        ("clients.slw.count=3", "'clients.slw.count=3' cannot be set: there is no 'slw'; did you mean 'slow'?"),
        ("strategies.fedbuff.buffer=3", "'strategies.fedbuff.buffer=3' cannot be set: there is no 'fedbuff'"),
        ("clients.slow=3", "'clients.slow=3' cannot be set: write path.to.key=value"),
        ("clients", "'clients' cannot be set: write path.to.key=value"),
        ("local.lr", "'local.lr' cannot be set: write path.to.key=value"),
        ("local.=1", "'local.=1' cannot be set: write path.to.key=value"),
        ("local.lr.x=1", "'local.lr.x=1' cannot be set: 'lr' is not a table; write path.to.key=value"),
        ("local.lr=fast", "local.lr: "),
        ("aggregations=0", "aggregations is 0: "),
        ("name=", "the key 'name' is missing"),
    ],
)
def test_what_cannot_be_set_is_one_sentence(setting: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        changed(DEMO, [setting])
    assert str(caught.value).startswith(sentence)
