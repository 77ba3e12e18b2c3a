"""How clients misbehave: what an attacker sends instead of the update that it trained. Only numbers; no torch.

How fast attackers are is the fleet's matter: a behaviour goes with any delay and any timing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fairlag.core.vector import Vector
from fairlag.errors import InputError
from fairlag.limits import shown
from fairlag.text import calls

_EXAMPLE = "sign_flip(10)"


class Known(NamedTuple):
    """What an attacker knows when it sends an update. Statistics of the model are not included."""

    update: Vector
    """The update that it trained honestly."""
    received: Vector
    """The parameters that it trained from."""
    before: Vector | None
    """The parameters that its previous task started from; None before its second task."""
    honest: Sequence[Vector]
    """The last updates of honest clients that arrived."""
    key: int
    """The key of its random numbers."""


class Behaviour(Protocol):
    """How an attacker behaves."""

    @property
    def flips_labels(self) -> bool:
        """Does it train on wrong labels?"""

    @property
    def window(self) -> int:
        """How many of the last honest updates it knows."""

    @property
    def remembers(self) -> bool:
        """Does it know the parameters that its previous task started from?"""

    def sent(self, known: Known) -> Vector:
        """What it sends as its update."""


@dataclass(frozen=True, slots=True)
class _Attack:
    """Base of behaviours: trains on its own labels, and knows nothing of others."""

    @property
    def flips_labels(self) -> bool:
        return False

    @property
    def window(self) -> int:
        return 0

    @property
    def remembers(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class SignFlip(_Attack):
    """``sign_flip(factor=1)``: the opposite of its update, `factor` times as long.

    >>> SignFlip(10).sent(known(update=[1, -2])).tolist()
    [-10.0, 20.0]
    """

    factor: float = 1.0

    def __post_init__(self) -> None:
        calls.number(self.factor, "factor of sign_flip", positive=True)

    def sent(self, known: Known) -> Vector:
        """−factor · Δ."""
        return known.update * np.float32(-self.factor)


@dataclass(frozen=True, slots=True)
class Scale(_Attack):
    """``scale(factor)``: its update times a factor.

    >>> Scale(3).sent(known(update=[1, -2])).tolist()
    [3.0, -6.0]
    """

    factor: float

    def __post_init__(self) -> None:
        if not (isinstance(self.factor, int | float) and isfinite(self.factor)):
            raise InputError(f"factor of scale is {shown(self.factor)}, but must be a finite number")

    def sent(self, known: Known) -> Vector:
        """factor · Δ."""
        return known.update * np.float32(self.factor)


@dataclass(frozen=True, slots=True)
class Noise(_Attack):
    """``noise(deviation)``: its update plus normal noise with this standard deviation in every parameter.

    >>> Noise(0).sent(known(update=[1, -2])).tolist()
    [1.0, -2.0]
    """

    deviation: float

    def __post_init__(self) -> None:
        calls.number(self.deviation, "deviation of noise")

    def sent(self, known: Known) -> Vector:
        """Δ + deviation · N(0, 1)."""
        draws = np.random.Generator(np.random.PCG64(known.key)).standard_normal(known.update.size, np.float32)
        return known.update + np.float32(self.deviation) * draws


@dataclass(frozen=True, slots=True)
class LabelFlip(_Attack):
    """``label_flip``: trains honestly, but on wrong labels: of C classes, label y becomes C − 1 − y."""

    @property
    def flips_labels(self) -> bool:
        """It does."""
        return True

    def sent(self, known: Known) -> Vector:
        """What it trained."""
        return known.update


@dataclass(frozen=True, slots=True)
class Lie(_Attack):
    """``lie(z, window=10)``: per parameter, mean − z · deviation of the last `window` honest updates that arrived.

    "A little is enough": such an update is not an outlier in any single parameter. Before two honest updates have
    arrived, it sends its own.

    >>> Lie(2).sent(known(honest=[[1], [3]])).tolist()
    [0.0]
    """

    z: float
    window: int = 10

    def __post_init__(self) -> None:
        calls.number(self.z, "z of lie")
        if not (isinstance(self.window, int) and self.window >= 2):
            raise InputError(f"window of lie is {shown(self.window)}, but must be a whole number of at least 2")

    def sent(self, known: Known) -> Vector:
        """mean − z · deviation."""
        if len(known.honest) < 2:
            return known.update
        honest = np.array(known.honest, np.float64)
        lie: Vector = (honest.mean(axis=0) - self.z * honest.std(axis=0)).astype(np.float32)
        return lie


@dataclass(frozen=True, slots=True)
class FreeRide(_Attack):
    """``free_ride(sends=zeros)``: contributes nothing: zeros, or with `last_step` the last step of the model it saw.

    That step is the difference between the versions that its last two tasks started from; zeros in its first task.

    >>> FreeRide().sent(known(update=[1, -2])).tolist()
    [0.0, 0.0]
    >>> FreeRide("last_step").sent(known(received=[5], before=[3])).tolist()
    [2.0]
    """

    sends: str = "zeros"

    def __post_init__(self) -> None:
        if self.sends not in ("zeros", "last_step"):
            raise InputError(f"free_ride sends {shown(self.sends)}, but must send zeros or last_step")

    @property
    def remembers(self) -> bool:
        """Only for the last step."""
        return self.sends == "last_step"

    def sent(self, known: Known) -> Vector:
        """0, or w − w'."""
        if not self.remembers or known.before is None:
            return np.zeros_like(known.update)
        return known.received - known.before


BEHAVIOURS: dict[str, Callable[..., Behaviour]] = {
    "sign_flip": SignFlip,
    "scale": Scale,
    "noise": Noise,
    "label_flip": LabelFlip,
    "lie": Lie,
    "free_ride": FreeRide,
}


def parse(text: str) -> Behaviour:
    """The behaviour that a text describes.

    >>> parse("sign_flip"), parse("free_ride(last_step)")
    (SignFlip(factor=1.0), FreeRide(sends='last_step'))
    """
    read = calls.read(text, "behaviour", _EXAMPLE)
    if not isinstance(read, calls.Call):
        raise InputError(f"the behaviour is {shown(text)}, but must be a call such as {_EXAMPLE}")
    return calls.build(read, BEHAVIOURS, "behaviour", nested=lambda word: word.text)


def flipped(labels: NDArray[Any], classes: int) -> NDArray[Any]:
    """The labels that `label_flip` trains on.

    >>> flipped(np.array([0, 3, 9]), 10).tolist()
    [9, 6, 0]
    """
    return classes - 1 - labels


def known(
    *,
    update: Sequence[float] = (0,),
    received: Sequence[float] = (0,),
    before: Sequence[float] | None = None,
    honest: Sequence[Sequence[float]] = (),
) -> Known:
    """What an attacker knows, from lists of numbers: for doctests and experiments.

    >>> known(update=[1]).update.tolist()
    [1.0]
    """
    vectors = [np.array(each, np.float32) for each in honest]
    last = None if before is None else np.array(before, np.float32)
    return Known(np.array(update, np.float32), np.array(received, np.float32), last, vectors, 0)
