"""A user's own function: found by its name, "module:function", and called with parameters from a file.

Importing a module runs it. Only this module imports what a file names, so a module that is refused here never runs.
"""

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

from fairlag.errors import FairlagError, InputError, nearest

Maker = Callable[..., Any]

_before: Callable[[str, str], None] | None = None


def before_importing(ask: Callable[[str, str], None] | None) -> None:
    """Sets a function that is called before this process imports a module that a file names; None for none.

    It gets the "module:function" and its purpose, such as "strategy". It may raise an InputError to refuse. The command
    line uses it to print the module's name, or to refuse all modules (`--no-code`).
    """
    global _before
    _before = ask


def is_code(use: object) -> bool:
    """Does this name a user's own function, which must be imported from a module?

    >>> is_code("fedbuff"), is_code("my_rules:by_trust")
    (False, True)
    """
    return isinstance(use, str) and ":" in use


def function(use: str, noun: str, folder: Path | None = None, error: type[InputError] = InputError) -> Maker:
    """The function that "module:function" names, imported from `folder`, the current folder, or Python's path.

    >>> function("math:gcd", "data set")(12, 18)
    6
    >>> function("math:gdc", "data set")
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: module 'math' has no function 'gdc'
    """
    module_name, _, function_name = use.partition(":")
    if _before is not None:
        _before(use, noun)
    with _importing_from(folder):
        try:
            module = importlib.import_module(module_name)
        except (Exception, SystemExit) as reason:
            raise error(f"cannot import {module_name!r} for {use!r}: {reason}") from reason
    found = getattr(module, function_name, None)
    if not callable(found):
        raise error(f"module {module_name!r} has no function {function_name!r}")
    try:
        inspect.signature(found)
    except ValueError:
        raise error(
            f"{use!r} does not declare its parameters, so it cannot be used as a {noun}: wrap it in a function"
        ) from None
    maker: Maker = found
    return maker


def name_of(use: object) -> str:
    """The name of what is used: the text, or the name of the function.

    >>> name_of("fedbuff"), name_of(called)
    ('fedbuff', 'called')
    """
    return use if isinstance(use, str) else getattr(use, "__name__", type(use).__name__)


def found(use: str | Maker, makers: Mapping[str, Maker], noun: str, folder: Path | None = None) -> Maker:
    """The maker: by name, by "module:function", or the function itself.

    >>> found("grater", {"greater": max}, "rule")
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: unknown rule 'grater': did you mean 'greater'?
    """
    if not isinstance(use, str):
        return use
    if is_code(use):
        return function(use, noun, folder)
    if use not in makers:
        raise InputError(f"unknown {noun} {use!r}: {nearest(use, [*makers, 'module:function'])}")
    return makers[use]


def called(make: Maker, name: str, parameters: Mapping[str, object], noun: str) -> Any:
    """The result of a function for these parameters; an error becomes a sentence with its kind and line.

    >>> called(dict, "own:table", {"rows": 3}, "data set")
    {'rows': 3}
    >>> def table(rows: int) -> int:
    ...     return 12 // rows
    >>> called(table, "own:table", {"row": 3}, "data set")
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: the data set own:table has no parameter 'row': did you mean 'rows'?
    """
    _check_fit(make, name, parameters, noun)
    try:
        return make(**parameters)
    except FairlagError:
        raise
    except Exception as reason:
        last = traceback.extract_tb(reason.__traceback__)[-1]
        where = f"({PurePath(last.filename).name}, line {last.lineno})"
        raise InputError(f"the {noun} {name} raised {type(reason).__name__}: {reason} {where}") from reason


def _check_fit(make: Maker, name: str, parameters: Mapping[str, object], noun: str) -> None:
    try:
        signature = inspect.signature(make)
    except ValueError:
        return  # a function written in C may not declare its parameters
    anything = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    if not anything and (unknown := [each for each in parameters if each not in signature.parameters]):
        known = nearest(unknown[0], signature.parameters)
        raise InputError(f"the {noun} {name} has no parameter {unknown[0]!r}: {known}")
    try:
        signature.bind(**parameters)
    except TypeError as reason:
        raise InputError(f"the {noun} {name} cannot be called with these parameters: {reason}") from None


@contextmanager
def _importing_from(folder: Path | None) -> Iterator[None]:
    places = [str(place) for place in (folder, Path.cwd()) if place is not None]
    sys.path[:0] = places
    try:
        yield
    finally:
        for place in places:
            sys.path.remove(place)
