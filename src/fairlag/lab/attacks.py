"""The attacks of an experiment: every strategy with every defence, on the honest fleet and under each attack."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from fairlag.errors import InputError, StrategyError, nearest
from fairlag.lab.clients import Clients
from fairlag.lab.learning import Table
from fairlag.lab.strategies import Use

if TYPE_CHECKING:
    from fairlag.lab.experiment import Experiment

NO_DEFENCE = "none"
HONEST = "none"


class Attack(Table):
    """An `[[attacks]]` table: which group attacks, and how."""

    group: str = Field(description="The group that attacks; in all other cases it is honest.")
    behaviour: str = Field(description="What its clients send: a [behaviour](#behaviours).")
    timing: str | None = Field(
        default=None, description="How they time their work while they attack: a [timing](#timings)."
    )

    @property
    def name(self) -> str:
        """Its name in tables and folders."""
        return f"{self.behaviour} by {self.group}" + (f", {self.timing}" if self.timing else "")


class Guarded(NamedTuple):
    """A strategy with a defence."""

    strategy: str
    defence: str


@dataclass(frozen=True, slots=True)
class Case:
    """One attack, or none, on every strategy with every defence."""

    attack: Attack | None
    experiment: "Experiment"
    guarded: dict[str, Guarded] = field(hash=False)
    """By the label of each strategy of the experiment."""

    @property
    def name(self) -> str:
        """The attack, in words."""
        return HONEST if self.attack is None else self.attack.name


class Misfit(NamedTuple):
    """A defence that a strategy does not take, and why."""

    guarded: Guarded
    reason: str


def cases(
    experiment: "Experiment", attacks: Sequence[Attack] = (), defences: Sequence[str] = ()
) -> tuple[list[Case], list[Misfit]]:
    """The honest fleet first, then one case per attack; by default those of the file.

    >>> from fairlag.lab.experiment import load
    >>> found, misfits = cases(load("siege"), defences=["median"])
    >>> found[0].name, list(found[0].guarded)[:2]
    ('none', ['Buffered FedAvg', 'Buffered FedAvg + median'])
    """
    attacks, defences = attacks or experiment.attacks or (), defences or experiment.defences or ()
    if not attacks:
        raise InputError(
            f"the experiment {experiment.name!r} has no attack: add an [[attacks]] table, or give --attack, such as "
            f"--attack '{experiment.clients[0].group}: sign_flip(10)'"
        )
    plain = experiment.checked(attacks=None, defences=None)
    uses, guarded, misfits = list[Use](), dict[str, Guarded](), list[Misfit]()
    for use in plain.strategies:
        for defence in (None, *defences):
            made = use if defence is None else _defended(use, defence)
            meant = Guarded(use.label, defence or NO_DEFENCE)
            try:
                plain.checked(strategies=(made,))
            except StrategyError as error:
                if defence is None:
                    raise
                misfits.append(Misfit(meant, str(error)))
                continue
            uses.append(made)
            guarded[made.label] = meant
    whole = plain.checked(strategies=tuple(uses))
    return [Case(each, _under(whole, each), guarded) for each in (None, *attacks)], misfits


def attack_of(text: str) -> Attack:
    """An attack as the command line takes it.

    >>> attack_of("slow: lie(1.5)").name, attack_of("fast: sign_flip(10), throttle(8)").timing
    ('lie(1.5) by slow', 'throttle(8)')
    """
    group, colon, rest = text.partition(":")
    behaviour, parenthesis, timing = rest.strip().partition("), ")
    if not colon or not behaviour:
        raise InputError(f"the attack is {text!r}, it must be a group and a behaviour, such as 'fast: sign_flip(10)'")
    return Attack(group=group.strip(), behaviour=behaviour + parenthesis[:1], timing=timing or None)


def _defended(use: Use, defence: str) -> Use:
    given: dict[str, Any] = {"use": use.use, "local": use.local, **use.parameters, "defence": defence}
    return Use.model_validate({**given, "label": f"{use.label} + {defence}"})


def _under(experiment: "Experiment", attack: Attack | None) -> "Experiment":
    if attack is None:
        return experiment
    groups = [table.group for table in experiment.clients]
    if attack.group not in groups:
        raise InputError(f"there is no group {attack.group!r} to attack: {nearest(attack.group, groups)}")
    return experiment.checked(clients=tuple(_attacking(experiment.clients, attack)))


def _attacking(clients: Sequence[Clients], attack: Attack) -> Iterator[Clients]:
    for table in clients:
        change = {"behaviour": attack.behaviour} | ({"timing": attack.timing} if attack.timing else {})
        yield table.model_copy(update=change) if table.group == attack.group else table
