"""Which optimiser of torch.optim makes the local steps, as an experiment file names it."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlag.errors import InputError, nearest
from fairlag.limits import clipped, shown
from fairlag.text import calls

if TYPE_CHECKING:  # importing torch takes a second, and most experiment files name no optimiser
    import torch

EXAMPLE = "adamw(betas=[0.9, 0.95], weight_decay=0.01)"
_CONSTANTS = {"true": True, "false": False, "none": None}
_UNFIT = {
    "lbfgs": "it computes the loss several times per step",
    "sparseadam": "it needs sparse gradients",
}
"""The optimisers that cannot be used, and why."""
_OURS = frozenset(("params", "lr", "maximize", "foreach", "fused", "capturable", "differentiable"))
"""Parameters that are not the user's: the step size is a key of its own, and the others would change how it runs."""


@dataclass(frozen=True, slots=True)
class Optimiser:
    """An optimiser and its parameters; the step size is not one of them.

    >>> str(Optimiser("adamw", (("betas", (0.9, 0.95)), ("amsgrad", True))))
    'adamw(betas=[0.9, 0.95], amsgrad=true)'
    """

    name: str
    parameters: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        """As it is written in an experiment file."""
        words = ", ".join(f"{name}={_word(value)}" for name, value in self.parameters)
        return f"{self.name}({words})" if words else self.name

    def made(self, parameters: "Iterable[torch.nn.Parameter]", lr: float) -> "torch.optim.Optimizer":
        """A new optimiser of these parameters, without any state."""
        try:
            make: Callable[..., torch.optim.Optimizer] = _known()[self.name]
            return make(parameters, lr=lr, **dict(self.parameters))
        except (ValueError, TypeError) as error:
            raise InputError(f"the optimiser {clipped(str(self))} cannot be used: {error}") from None


def parse(text: str) -> Optimiser:
    """The optimiser that a text describes, checked by making one.

    >>> parse("AdamW(betas=[0.9, 0.95])").parameters
    (('betas', (0.9, 0.95)),)
    >>> parse("adamww")
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: there is no optimiser 'adamww': did you mean 'adamw'?
    """
    call = calls.read(text, "optimiser", EXAMPLE, lists=True)
    if not isinstance(call, calls.Call):
        raise InputError(f"the optimiser {shown(text)} is not a name; write for example {EXAMPLE}")
    name, known = call.name.lower(), _known()
    if name in _UNFIT:
        raise InputError(f"the optimiser {name} cannot be used, because {_UNFIT[name]}: {_choose(known)}")
    if name not in known:
        raise InputError(f"there is no optimiser {shown(call.name)}: {nearest(name, known)}")
    if call.arguments:
        raise InputError(f"{clipped(text)} has a parameter without a name; write for example {EXAMPLE}")
    accepted = [each for each in inspect.signature(known[name]).parameters if each not in _OURS]
    for given in call.keywords:
        if given == "lr":
            raise InputError(f"the step size of {clipped(text)} is the key lr of [local]: write it there")
        if given not in accepted:
            raise InputError(f"the optimiser {name} has no parameter {shown(given)}: {nearest(given, accepted)}")
    made = Optimiser(name, tuple((key, _plain(value)) for key, value in call.keywords.items()))
    _try(made)
    return made


def _try(optimiser: Optimiser) -> None:
    """Refuses parameters that torch refuses, at construction or at the first step."""
    import torch

    weight = torch.nn.Parameter(torch.zeros(1, 1))
    weight.grad = torch.ones(1, 1)
    try:
        optimiser.made([weight], 0.1).step()
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"the optimiser {clipped(str(optimiser))} cannot be used: {error}") from None


def _known() -> "dict[str, type[torch.optim.Optimizer]]":
    from torch import optim

    every = [each for each in vars(optim).values() if isinstance(each, type) and issubclass(each, optim.Optimizer)]
    return {
        each.__name__.lower(): each
        for each in every
        if each is not optim.Optimizer and each.__name__.lower() not in _UNFIT
    }


def _choose(known: Iterable[str]) -> str:
    return f"choose from {', '.join(sorted(known))}"


def _plain(value: calls.Argument) -> object:
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if not isinstance(value, calls.Call):
        return value
    if value.name.lower() in _CONSTANTS and value.text == value.name:
        return _CONSTANTS[value.name.lower()]
    raise InputError(f"{clipped(value.text)} cannot be a parameter of an optimiser, write a number, true or false")


def _word(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_word, value))}]"
    if isinstance(value, str):
        return repr(value)
    return str(value).lower() if value is None or isinstance(value, bool) else calls.write(value)
