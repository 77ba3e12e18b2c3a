"""The `[privacy]` table of an experiment file: what hides single clients from the server and from the model."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil, inf
from typing import Any

from pydantic import Field, model_validator

from fairlag.core.mechanism import Draw, Mechanism
from fairlag.core.secure import check_hidden
from fairlag.core.strategy import Strategy
from fairlag.core.vector import Layout
from fairlag.errors import StrategyError
from fairlag.lab.learning import Table
from fairlag.privacy import noise
from fairlag.zoo.private import hidden, largest_part, noisy


class Privacy(Table):
    """The `[privacy]` table: secure aggregation, differential privacy, or both.

    >>> Privacy(clip=1.0, noise=0.5, delta=1e-5).differential
    True
    """

    secure: bool = Field(
        default=False,
        description="Hide single updates from the server: it learns only their weighted sum. Needs a `bound` below 1.",
    )
    masks: bool = Field(
        default=True,
        description="In simulations: `false` leaves out the arithmetic of the masks. Updates are rounded in the same "
        "way, so results are the same.",
    )
    bound: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="The largest share of one client in the total weight of a version. What is cut off goes to the "
        "others; FairShare keeps it in the account.",
    )
    clip: float | None = Field(
        default=None, gt=0, lt=inf, description="Shorten every update to at most this length (the norm C)."
    )
    noise: float | None = Field(
        default=None,
        gt=0,
        lt=inf,
        description="Add Gaussian noise to every step. Its standard deviation is `noise` · `clip` · the largest weight "
        "that one client can have in a version.",
    )
    delta: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="The δ of (ε, δ)-differential privacy. Choose it well below 1 / the number of clients.",
    )
    budget: float | None = Field(
        default=None,
        gt=0,
        lt=inf,
        description="The largest ε of a client. A client that might exceed it with its next update gets no more tasks.",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> "Privacy":
        if self.secure and self.bound == 1:
            raise ValueError("secure = true hides nothing if one client may be a whole version: give bound below 1")
        if not self.masks and not self.secure:
            raise ValueError("masks = false leaves out the masks of secure aggregation: give secure = true as well")
        if self.noise is not None and self.clip is None:
            raise ValueError(f"noise is {self.noise:g}, but how much it hides depends on clip: give clip as well")
        if self.noise is not None and self.delta is None:
            raise ValueError(f"noise is {self.noise:g}, but ε has no meaning without δ: give delta, such as 1e-5")
        if self.delta is not None and self.noise is None:
            raise ValueError(f"delta is {self.delta:g}, but without noise there is no ε: give noise as well")
        if self.budget is not None and self.noise is None:
            raise ValueError(f"budget is {self.budget:g}, but without noise every ε is infinite: give noise and delta")
        return self

    @property
    def differential(self) -> bool:
        """Is there noise, and so an ε per client?"""
        return self.noise is not None

    def protected(self, strategy: Strategy, clients: int, label: str) -> Strategy:
        """The strategy with bounded weights; refused if it needs what is hidden."""
        make = noisy if self.differential else hidden
        with _named(label):
            return make(strategy, bound=self.bound, clients=clients)

    def check_model(self, strategy: Strategy, layout: Layout, label: str) -> None:
        """Refuses a strategy and a model for which secure aggregation is not enough, if the table asks for it."""
        if self.secure:
            with _named(label):
                check_hidden(strategy, layout)

    def mechanism(self, strategy: Strategy, draw: Draw) -> Mechanism | None:
        """What the server does with updates and steps under a strategy that `protected` made; None for nothing."""
        if self.clip is None:
            return None
        if self.noise is None or self.delta is None:
            return Mechanism(self.clip)
        from fairlag.privacy.accounting import allowance  # it imports scipy, which takes long

        return Mechanism(
            self.clip,
            most=largest_part(strategy),
            noise=self.noise,
            draw=draw,
            budget=inf if self.budget is None else allowance(self.budget, self.delta),
            least=ceil(round(1 / self.bound, 9)),
        )


@contextmanager
def _named(label: str) -> Iterator[None]:
    """Inside, a refusal says which strategy it is about."""
    try:
        yield
    except StrategyError as error:
        raise StrategyError(f"{label} does not fit [privacy]: {error}") from None


def simulated(privacy: Privacy | None, strategy: Strategy, seed: int) -> Mechanism | None:
    """The mechanism of a simulated run: its noise follows from the seed."""
    return None if privacy is None else privacy.mechanism(strategy, noise.seeded(seed))


def deployed(privacy: Privacy | None, strategy: Strategy) -> Mechanism | None:
    """The mechanism of a deployment: nobody can repeat its noise."""
    return None if privacy is None else privacy.mechanism(strategy, noise.system)


def noise_facts(privacy: Privacy | None, strategy: Strategy, source: str) -> dict[str, Any]:
    """What the record of a run notes about its noise; nothing without noise."""
    if privacy is None or not privacy.differential:
        return {}
    return {"noise_source": source, "largest_weight": largest_part(strategy)}
