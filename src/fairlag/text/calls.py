"""How delays, availabilities and strategies are written: calls such as ``uniform(1, 2)``; nothing is evaluated."""

import ast
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from pathlib import Path
from typing import TypeAlias, TypeVar

from fairlag.errors import InputError, nearest
from fairlag.limits import DEPTH, clipped, shown

Made = TypeVar("Made")
Value: TypeAlias = "int | float | str | Call"
Argument: TypeAlias = "Value | tuple[Value, ...]"


@dataclass(frozen=True, slots=True)
class Call:
    """A name with its arguments, as the user wrote them; a bare name is a call without arguments.

    >>> call = read("gamma(2, scale=0.5)", "delay", "uniform(1, 2)")
    >>> call.name, call.arguments, call.keywords
    ('gamma', (2,), {'scale': 0.5})
    """

    text: str
    name: str
    arguments: tuple[Argument, ...]
    keywords: Mapping[str, Argument]


@dataclass(frozen=True, slots=True)
class Written:
    """Base of the records that a user writes: ``str`` gives the text that ``parse`` reads."""

    def __str__(self) -> str:
        """The name and the arguments in order, without those at their default."""
        arguments = [(getattr(self, field.name), field.default) for field in fields(self) if field.init]
        shown = [write(value) for value, default in arguments if value != default]
        return f"{self._name()}({', '.join(shown)})" if shown else self._name()

    def _settle(self, *names: str, most: float = math.inf) -> None:
        """Checks the named numbers and stores them as floats."""
        for name in names:
            checked = number(getattr(self, name), f"{name} of {self._name()}", most=most)
            object.__setattr__(self, name, checked)

    def _name(self) -> str:
        return type(self).__name__.lower()


def read(text: str, noun: str, example: str, *, lists: bool = False) -> Value:
    """The value of a text: a number, a quoted string, or a call whose arguments are values of these kinds.

    With `lists`, arguments may also be lists of such values.

    >>> read("2.5", "delay", "uniform(1, 2)")
    2.5
    >>> read("adam(betas=[0.9, 0.95])", "optimiser", "adamw", lists=True).keywords
    {'betas': (0.9, 0.95)}
    """
    text = text.strip()
    if _too_deep(text):
        raise InputError(
            f"the {noun} {shown(text)} is nested more than {DEPTH} levels deep; write for example {example}"
        )
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"the {noun} {shown(text)} cannot be read; write for example {example}") from None
    return _value(tree.body, text, noun, example, lists)


def _too_deep(text: str) -> bool:
    """Counted before parsing. Parentheses within quotes count too, but no file name has that many."""
    depth = 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if depth > DEPTH:
            return True
    return False


def _value(node: ast.expr, text: str, noun: str, example: str, lists: bool) -> Value:
    match node:
        case ast.Constant(value=int() | float() | str() as plain):
            return plain
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as plain)):
            return -plain
        case ast.Name(id="inf" | "nan" as name):
            return float(name)
        case ast.Name(id=name):
            return Call(name, name, (), {})
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords) if _distinct(keywords):
            return Call(
                text=ast.get_source_segment(text, node) or text,
                name=name,
                arguments=tuple(_argument(argument, text, noun, example, lists) for argument in arguments),
                keywords={str(word.arg): _argument(word.value, text, noun, example, lists) for word in keywords},
            )
    part = ast.get_source_segment(text, node)
    raise InputError(
        f"{shown(part)} in the {noun} {shown(text)} must be a number, a file name in quotes, "
        f"or a call such as {example}"
    )


def _argument(node: ast.expr, text: str, noun: str, example: str, lists: bool) -> Argument:
    if lists and isinstance(node, ast.List | ast.Tuple):
        return tuple(_value(part, text, noun, example, lists) for part in node.elts)
    return _value(node, text, noun, example, lists)


def _distinct(keywords: Iterable[ast.keyword]) -> bool:
    names = [word.arg for word in keywords]
    return None not in names and len(set(names)) == len(names)


def build(call: Call, makers: Mapping[str, Callable[..., Made]], noun: str, nested: Callable[[Call], object]) -> Made:
    """The object that a call describes, made by the maker of its name; ``nested`` builds calls among the arguments.

    >>> build(Call("power(2, 3)", "power", (2, 3), {}), {"power": pow}, "number", nested=str)
    8
    """
    if call.name not in makers:
        raise InputError(f"there is no {noun} {shown(call.name)}: {nearest(call.name, makers)}")
    maker = makers[call.name]
    arguments = [nested(value) if isinstance(value, Call) else value for value in call.arguments]
    keywords = {name: nested(value) if isinstance(value, Call) else value for name, value in call.keywords.items()}
    try:
        inspect.signature(maker).bind(*arguments, **keywords)
    except TypeError as error:
        raise InputError(f"{clipped(call.text)} does not fit ({error}); write {_signature(call.name, maker)}") from None
    return maker(*arguments, **keywords)


def _signature(name: str, maker: Callable[..., object]) -> str:
    parameters = inspect.signature(maker).parameters.values()
    return f"{name}({', '.join(str(one.replace(annotation=one.empty)) for one in parameters)})"


def number(value: object, what: str, *, most: float = math.inf, positive: bool = False) -> float:
    """A value as a finite float that is at least 0 (above 0 if ``positive``) and at most ``most``.

    >>> number(2, "low of uniform")
    2.0
    >>> number(-1, "low of uniform")
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: low of uniform is -1, but must be a finite number of at least 0
    """
    try:
        # In Python a bool is an int, but True seconds make no sense.
        checked = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        checked = math.inf
    if math.isfinite(checked) and 0 <= checked <= most and (checked or not positive):
        return checked
    accepted = f"a number from 0 to {most:g}" if most < math.inf else "a finite number of at least 0"
    found = clipped(str(value)) if isinstance(value, Written) else shown(value)
    raise InputError(f"{what} is {found}, but must be {'a finite number above 0' if positive else accepted}")


def check_mean(mean: float, what: object) -> None:
    """Refuses a delay whose mean is 0 or infinite.

    >>> check_mean(0.0, "uniform(0, 0)")
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: uniform(0, 0) has mean 0, but virtual time advances only with a finite mean above 0
    """
    if not 0 < mean < math.inf:
        raise InputError(
            f"{clipped(str(what))} has mean {write(mean)}, but virtual time advances only with a finite mean above 0"
        )


def write(value: object) -> str:
    """A value as it is written among the arguments of a call.

    >>> write(2.0), write(0.1), write(Path("a.csv"))
    ('2', '0.1', "'a.csv'")
    """
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return repr(str(value)) if isinstance(value, Path) else str(value)
