"""Text from documentation strings: whatever Python runs this, the same tokens, windows and pools."""

from pathlib import Path

import numpy as np
import pytest

from fairlag.data import docstrings
from fairlag.data.load import load
from fairlag.errors import InputError

SOURCES = {
    "alone.py": '"""Alone."""\nclass A:\n  """Of A.\n\n  Indented.\n  """\n  async def f(self):\n    "Of f."\n',
    "pack/__init__.py": '"""Alone."""\n"""Not a docstring."""\n',
    "pack/inner.py": 'def g():\n    "Of g."\n',
    "pack/tests/checks.py": '"""A test."""\n',
    "bad.py": "def (:\n",
    "bare.py": "x = 1\n",
    "other.py": '"""Not asked for."""\n',
}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_strings_are_read_without_importing_and_each_once(library: Path) -> None:
    found = docstrings.read(library, ["pack", "alone", "bad", "bare", "missing"])
    assert found == {"alone": "Alone.\n\nOf A.\n\nIndented.\n\nOf f.\n\n", "pack": "Of g.\n\n"}


def test_a_python_without_sources_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docstrings._installed.cache_clear()
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(InputError, match="source files of Python's standard library, but '"):
        load("docstrings")


def two_texts() -> dict[str, str]:
    return {"long": "abcdefghijklmnopq" * 3, "a": "x" * 30, "b": "y" * 30, "short": "z"}


def test_sequences_overlap_by_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docstrings, "_installed", two_texts)
    data = load("docstrings", {"length": 10, "clients": 2, "least": 50})
    assert data.clients == ("a to b", "long") and data.classes == 97
    assert data.owners is not None and data.owners.tolist() == [0] * 5 + [1] * 5
    letters = np.array(["?", *docstrings.ALPHABET])
    assert ["".join(row) for row in letters[data.inputs[5:7]]] == ["abcdefghij", "klmnopqabc"]
    assert ["".join(row) for row in letters[data.labels[5:7]]] == ["bcdefghijk", "lmnopqabcd"]
    assert (data.inputs[:, 1:] == data.labels[:, :-1]).all()


def test_the_fingerprint_follows_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"length": 10, "clients": 2, "least": 50}
    monkeypatch.setattr(docstrings, "_installed", two_texts)
    before = load("docstrings", small).fingerprint
    assert load("docstrings", small).fingerprint == before
    monkeypatch.setattr(docstrings, "_installed", lambda: {**two_texts(), "b": "Y" + "y" * 29})
    assert load("docstrings", small).fingerprint != before


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"length": 0}, "length of docstrings is 0, but must be a whole number of at least 1"),
        ({"clients": 0}, "clients of docstrings is 0"),
        ({"least": 1.5}, "least of docstrings is 1.5"),
        ({"clients": 3, "least": 50, "length": 9}, "has text for 2 clients with at least 50 characters: ask for fewer"),
        ({"clients": 3, "least": 1, "length": 40}, "has text for 2 clients with at least 41 characters"),
    ],
)
def test_what_cannot_be_asked_for(parameters: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docstrings, "_installed", two_texts)
    with pytest.raises(InputError) as caught:
        load("docstrings", parameters)
    assert words in str(caught.value)


@pytest.mark.slow  # reading a thousand files takes seconds
def test_this_python_has_enough_text_for_the_preset() -> None:
    data = load("docstrings", {"length": 32, "clients": 15})
    assert {"asyncio", "email", "logging", "unittest", "xml"} <= {*data.clients}
    assert data.owners is not None and np.bincount(data.owners).min() > 300
    assert (data.inputs == 0).mean() < 0.01  # nearly all characters are in the alphabet
