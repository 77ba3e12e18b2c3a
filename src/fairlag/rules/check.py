"""Checks of the numbers that rules are made with. Each refusal is one sentence with the value and the bounds."""

import math

from fairlag.errors import StrategyError


def positive(what: str, value: float) -> None:
    """Refuses anything but a finite number above 0.

    >>> positive("the interval", 0.0)
    Traceback (most recent call last):
    fairlag.errors.StrategyError: the interval is 0.0, it must be a positive number
    """
    if not (value > 0 and math.isfinite(value)):
        raise StrategyError(f"{what} is {value}, it must be a positive number")


def not_negative(what: str, value: float) -> None:
    """Refuses anything but a finite number of at least 0.

    >>> not_negative("the power", -0.5)
    Traceback (most recent call last):
    fairlag.errors.StrategyError: the power is -0.5, it must be a number of at least 0
    """
    if not (value >= 0 and math.isfinite(value)):
        raise StrategyError(f"{what} is {value}, it must be a number of at least 0")


def share(what: str, value: float) -> None:
    """Refuses anything but a number from 0 to 1.

    >>> share("explore", 1.5)
    Traceback (most recent call last):
    fairlag.errors.StrategyError: explore is 1.5, it must be a number from 0 to 1
    """
    if not 0 <= value <= 1:
        raise StrategyError(f"{what} is {value}, it must be a number from 0 to 1")


def mixture(what: str, value: float) -> None:
    """Refuses anything but a number above 0 and at most 1.

    >>> mixture("alpha", 0.0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fairlag.errors.StrategyError: alpha is 0.0, it must be above 0 and at most 1: the part of a client's model in...
    """
    if not 0 < value <= 1:
        raise StrategyError(
            f"{what} is {value}, it must be above 0 and at most 1: the part of a client's model in the next version"
        )


def whole(what: str, value: int, least: int, unit: str = "") -> None:
    """Refuses anything but a whole number of at least `least`.

    >>> whole("the cohort", 0, 1, "client")
    Traceback (most recent call last):
    fairlag.errors.StrategyError: the cohort is 0, it must be a whole number of at least 1 client
    """
    if not (isinstance(value, int) and value >= least):
        raise StrategyError(f"{what} is {value}, it must be a whole number of at least {least} {unit}".rstrip())


def window(value: int | None) -> None:
    """Refuses a window of less than one update.

    >>> window(0)
    Traceback (most recent call last):
    fairlag.errors.StrategyError: the window is 0, it must be at least 1 update, or none for all of the past
    """
    if value is not None and value < 1:
        raise StrategyError(f"the window is {value}, it must be at least 1 update, or none for all of the past")


def deadline(value: float | None) -> None:
    """Refuses a deadline that is not positive.

    >>> deadline(0.0)
    Traceback (most recent call last):
    fairlag.errors.StrategyError: the deadline is 0.0, it must be positive, or none
    """
    if value is not None and not value > 0:
        raise StrategyError(f"the deadline is {value}, it must be positive, or none")
