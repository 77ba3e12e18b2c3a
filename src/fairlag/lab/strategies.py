"""The `[[strategies]]` tables of an experiment file, and the strategies that they describe: the zoo's, or your own."""

import inspect
from collections.abc import Mapping
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from fairlag import imported
from fairlag.core.strategy import Strategy
from fairlag.errors import InputError, StrategyError, nearest
from fairlag.imported import Maker, name_of
from fairlag.lab.learning import Made
from fairlag.lab.messages import in_our_words
from fairlag.rules.rule import failure, traits
from fairlag.text.calls import Call, read
from fairlag.zoo import ALGORITHMS, buffered

Used = str | Maker | Strategy

_EXAMPLE = "fedadam(cohort=5)"


def checked_use(use: object) -> Used:
    """Checks the value of `use`: a name, a function, or a Strategy."""
    if not (isinstance(use, str | Strategy) or callable(use)):
        raise ValueError(f"it is {use!r}, but must be a name, a function or a Strategy")
    return use


def checked_label(label: str) -> str:
    """Refuses halves of characters, because a label is written into files, which cannot hold them."""
    try:
        label.encode()
    except UnicodeEncodeError:
        raise ValueError(f"it is {label!r}, but half a character (a lone surrogate) cannot be written") from None
    return label


class Use(Made):
    """A `[[strategies]]` table: which algorithm, under which name, and its parameters."""

    use: Annotated[Any, AfterValidator(checked_use)] = Field(
        description='A name from [the table below](#strategies), or `"module:function"` for '
        "[your own](#your-own-strategy). In Python, also a function or a Strategy."
    )
    label: Annotated[str, AfterValidator(checked_label)] = Field(
        default="",
        description="Its name in tables, figures and folders. By default its title, with the parameters that differ "
        "from their defaults.",
    )
    defence: str | None = Field(
        default=None,
        description="What protects it against clients that [misbehave](#behaviours): a [defence](#defences).",
    )

    local: dict[str, Any] | None = Field(
        default=None,
        description="The keys of [`[local]`](#local) that are different for this strategy, such as `{ lr = 0.05 }`.",
    )

    @model_validator(mode="before")
    @classmethod
    def _give_a_label(cls, table: Any) -> Any:
        if isinstance(table, dict) and "use" in table and not table.get("label"):
            parameters = {key: value for key, value in table.items() if key not in ("use", "label", "local")}
            own = table.get("local")
            locally = {f"local.{key}": value for key, value in own.items()} if isinstance(own, dict) else {}
            return {**table, "label": label(table["use"], parameters | locally)}
        return table

    @property
    def name(self) -> str:
        """The name of what is used."""
        return name_of(self.use)


def build(use: Used, parameters: Mapping[str, object], folder: Path | None = None) -> Strategy:
    """The strategy of this name with these parameters.

    `use` is an algorithm of the zoo, a user's own function ("module:function", imported from the experiment's folder or
    from Python's path, or the function itself), or a Strategy. A function with two positional arguments is a weighting,
    (buffer, view) → weights, and is used in the paper's loop; any other must return a Strategy.

    >>> build("fedbuff", {"buffer": 4}).trigger.label
    'count(4)'
    """
    if isinstance(use, Strategy):
        if parameters:
            raise StrategyError(f"a Strategy takes no parameters, but {', '.join(parameters)} was given")
        return use
    make = _maker(use, folder) if isinstance(use, str) else use
    use = name_of(use)
    if _is_weighting(make):
        make = _weighting(make)
    values = _checked(make, use, parameters)
    try:
        strategy = make(**values)
    except Exception as error:
        raise failure("function", make, error) from error
    if not isinstance(strategy, Strategy):
        raise StrategyError(
            f"{use!r} returned {type(strategy).__name__}: it must be a weighting of (buffer, view), "
            "or return a fairlag.Strategy"
        )
    return strategy


def strategy_call(text: str) -> tuple[str, dict[str, object]]:
    """The name and the parameters in a text, in the notation of delays.

    >>> strategy_call("fedadam(cohort=5)"), strategy_call("my_rules:square_root(power=0.3, cap=none)")
    (('fedadam', {'cohort': 5}), ('my_rules:square_root', {'power': 0.3, 'cap': 'none'}))
    """
    name, bracket, rest = text.strip().partition("(")
    if not bracket:
        return name, {}
    try:  # "module:function" is not an expression, so only the part in parentheses is parsed as one
        call = read(f"strategy({rest}", "strategy", _EXAMPLE)
    except InputError:
        call = None
    if not isinstance(call, Call) or call.arguments or not all(map(_is_plain, call.keywords.values())):
        raise StrategyError(
            f"the strategy {text!r} cannot be read: give each parameter by name, a number or a word, as in {_EXAMPLE}"
        )
    words: dict[str, object] = {
        key: value.name if isinstance(value, Call) else value for key, value in call.keywords.items()
    }
    return name.strip(), words


def _is_plain(value: object) -> bool:
    return not isinstance(value, Call) or value.text == value.name


def takes(use: Used, parameter: str, folder: Path | None = None) -> bool:
    """Does an algorithm have a parameter of this name?

    >>> takes("fedbuff", "buffer"), takes("fedavg", "buffer")
    (True, False)
    """
    return parameter in parameters_of(use, folder)


def parameters_of(use: Used, folder: Path | None = None) -> Mapping[str, object]:
    """The parameters of an algorithm, by name.

    >>> list(parameters_of("fedbuff"))
    ['buffer', 'concurrency', 'power', 'max_staleness', 'lr']
    """
    if isinstance(use, Strategy):
        return {}
    make = _maker(use, folder) if isinstance(use, str) else use
    return inspect.signature(_weighting(make) if _is_weighting(make) else make).parameters


def label(use: Used, parameters: Mapping[str, object]) -> str:
    """A readable name for a strategy: its title, and the parameters that differ from their defaults.

    >>> label("fedstaleweight", {"buffer": 5, "scaling": "algorithm1"})
    'FedStaleWeight (scaling=algorithm1)'
    """
    known = ALGORITHMS.get(use) if isinstance(use, str) else None
    title = known.title if known else name_of(use).rpartition(":")[2]
    defaults = {name: parameter.default for name, parameter in known.parameters.items()} if known else {}
    words = [f"{name}={value}" for name, value in parameters.items() if defaults.get(name, ...) != value]
    return f"{title} ({', '.join(words)})" if words else title


def _maker(use: str, folder: Path | None) -> Maker:
    if not imported.is_code(use):
        if use not in ALGORITHMS:
            raise StrategyError(f"unknown strategy {use!r}: {nearest(use, ALGORITHMS)}")
        return ALGORITHMS[use].make
    return imported.function(use, "strategy", folder, StrategyError)


def _is_weighting(function: Maker) -> bool:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    required = sum(each.kind in positional and each.default is each.empty for each in parameters)
    return required == 2 and _hints(function).get("return") is not Strategy


def _weighting(rule: Maker) -> Maker:
    """The paper's loop around a user's weighting, with the parameters of both."""
    own = list(inspect.signature(rule).parameters.values())[2:]
    loop = list(inspect.signature(buffered).parameters.values())[1:]
    if clash := {each.name for each in own} & {each.name for each in loop}:
        raise StrategyError(
            f"{name_of(rule)} has a parameter {clash.pop()!r}, which the loop around it has too: rename it"
        )

    @wraps(buffered)
    def make(**parameters: object) -> Strategy:
        mine = {parameter.name: parameters.pop(parameter.name) for parameter in own if parameter.name in parameters}
        weigh = rule if not mine else _named(partial(rule, **mine), rule)
        return buffered(weigh, **parameters)  # type: ignore[arg-type]

    keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    make.__signature__ = inspect.Signature([*loop, *keyword])  # type: ignore[attr-defined]
    hints = _hints(rule)
    make.__annotations__ = {**_hints(buffered), **{each.name: hints.get(each.name, Any) for each in own}}
    return make


def _fitted(hint: Any, value: object) -> object:
    wanted = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
    try:
        return wanted.validate_python(value, strict=True)
    except ValidationError:
        if value != "none" and value is not False:
            raise
        return wanted.validate_python(None, strict=True)


def _takes_none(hint: Any) -> bool:
    return type(None) in get_args(hint)


def _hints(function: Maker) -> dict[str, Any]:
    """The annotations of a function; none if they cannot be resolved."""
    try:
        return get_type_hints(function)
    except (NameError, TypeError):
        return {}


def _named(call: partial[Any], rule: Maker) -> partial[Any]:
    call._traits = traits(rule)  # type: ignore[attr-defined]
    return call


def _checked(make: Maker, use: str, parameters: Mapping[str, object]) -> dict[str, object]:
    """The parameters, converted to the types that the function expects; "none" and false mean None in TOML."""
    signature, hints = inspect.signature(make), _hints(make)
    values = {}
    for name, value in parameters.items():
        if name not in signature.parameters:
            raise StrategyError(f"{use!r} has no parameter {name!r}: {nearest(name, signature.parameters)}")
        try:
            values[name] = _fitted(hints.get(name, Any), value)
        except ValidationError as error:
            reason = in_our_words(error.errors()[0]["msg"])
            none = ", or 'none'" if _takes_none(hints[name]) else ""
            raise StrategyError(f"{name} of {use!r} is {value!r}: {reason}{none}") from None
    missing = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.default is parameter.empty and name not in values
    ]
    if missing:
        raise StrategyError(f"{use!r} needs a value for {missing[0]!r}")
    return values
