"""The rule for fast paths: each lists the fields it implements. If any other field is set, the reference takes over."""

from collections.abc import Set
from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def other_field(record: "DataclassInstance", implemented: Set[str]) -> str | None:
    """The first field of a record that is neither implemented nor at its default; None if the fast path applies.

    A new field is in no list, so the reference takes over until the fast path implements it.

    >>> from fairlag.rules.local import Local
    >>> other_field(Local(prox=0.1), {"prox"}), other_field(Local(prox=0.1, losses=True), {"prox"})
    (None, 'losses')
    """
    others = (field for field in fields(record) if field.name not in implemented)
    return next((field.name for field in others if getattr(record, field.name) != field.default), None)
