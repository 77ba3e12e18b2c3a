"""What `import fairlag` exports: every name is there, documented by an example, and imported late."""

import doctest
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import fairlag

EXPORTED = [
    *(f"fairlag.{name}" for name in fairlag.__all__ if name != "__version__"),
    *(f"fairlag.rules.{name}" for name in fairlag.rules.__all__),
    *(f"fairlag.zoo.{name}" for name in fairlag.zoo.__all__ if name != "ALGORITHMS"),
    *(f"fairlag.flower.{name}" for name in fairlag.flower.__all__),
]


def found(name: str) -> object:
    value: object = fairlag
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    return value


def examples(value: object) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")


@pytest.mark.parametrize("name", EXPORTED)
def test_every_exported_name_is_documented_by_an_example(name: str) -> None:
    """A module of rules by those of its rules; the suite runs them all."""
    value = found(name)
    assert inspect.getdoc(value)
    inside = vars(value).values() if isinstance(value, ModuleType) else ()
    assert examples(value) or any(examples(each) for each in inside if inspect.getmodule(each) is value)


def test_an_editor_sees_what_is_exported() -> None:
    assert sorted(dir(fairlag)) == sorted(fairlag.__all__)
    source = inspect.getsource(fairlag)
    assert [name for name in EXPORTED[: len(fairlag.__all__) - 1] if f"import {name[8:]} as " not in source] == []
    with pytest.raises(AttributeError, match="module 'fairlag' has no attribute 'fedbuf'"):
        _ = fairlag.fedbuf


def test_exports_are_imported_late() -> None:
    heavy = "import sys, fairlag; print({'numpy', 'torch', 'pydantic', 'rich', 'pandas', 'flwr'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_composing_a_strategy_needs_no_torch() -> None:
    code = "import sys, fairlag; fairlag.zoo.fedbuff(); fairlag.Server; fairlag.Fleet; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize("name", ["flower", "deploy"])
def test_without_flower_one_sentence_says_what_to_install(name: str) -> None:
    code = f"import sys; sys.modules['flwr'] = None; import fairlag; fairlag.{name}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stderr.endswith(
        "fairlag.errors.ExtraError: a deployment needs the extra `flower`: pip install 'fairlag[flower]'\n"
    )
