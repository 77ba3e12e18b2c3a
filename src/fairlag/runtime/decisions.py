"""What can be decided about the nodes of a fleet; it needs no Flower, because readers of a run use it, too."""

from typing import NamedTuple

from fairlag.limits import printable

ADMITTED, REFUSED, BOUNDED, QUARANTINED, RELEASED = "admitted", "refused", "bounded", "quarantined", "released"
KINDS = (ADMITTED, REFUSED, BOUNDED, QUARANTINED, RELEASED)
"""The kinds of decisions."""


class Order(NamedTuple):
    """A node is put into quarantine, or released from it."""

    node: str
    """Its name in the roster, as one line."""
    why: str
    release: bool = False


def plain(text: str) -> str:
    """A text on one line, without characters that a terminal would interpret: nodes choose their names.

    >>> plain("name a\\n2026 node b is admitted")
    'name a 2026 node b is admitted'
    """
    return " ".join(printable(text).split())
