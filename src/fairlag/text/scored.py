"""A metric that models are judged by, as runs record it: its name, which way is better, and how values are written."""

from typing import NamedTuple

from fairlag.text.numerals import number


class Scored(NamedTuple):
    """A metric of models.

    >>> ACCURACY.title, ACCURACY.written(0.5), ACCURACY.told(0.5), Scored("macro_f1", True, False).told(0.5)
    ('accuracy %', '50.00', '50.00 %', '0.5')
    """

    name: str
    higher: bool
    """Are higher values better?"""
    rate: bool
    """Is it a share of examples, which is written in per cent and has a standard error?"""

    @property
    def words(self) -> str:
        """In a sentence."""
        return self.name.replace("_", " ")

    @property
    def title(self) -> str:
        """At the head of a column."""
        return f"{self.words} %" if self.rate else self.words

    @property
    def form(self) -> str:
        """How a value is written, in per cent with the sign."""
        return "{:.2%}" if self.rate else "{:.4g}"

    def written(self, value: float | None) -> str:
        """A value as a cell of a table, without the sign, which is in the title."""
        return number(value, self.form).rstrip("%")

    def told(self, value: float) -> str:
        """A value in a sentence."""
        return f"{self.written(value)} %" if self.rate else self.written(value)


COLUMNS = ("version", "time", "scope", "name", "examples", "whole", "standard_error")
"""The columns of evaluations that are no metrics: no metric can have such a name."""
ACCURACY = Scored("accuracy", higher=True, rate=True)
"""The metric of runs that do not say which they have."""
LOSS = Scored("loss", higher=False, rate=False)
"""The mean of what training minimises; it is recorded beside every metric."""
