"""A metric that models are judged by, as runs record it: its name, which way is better, and how values are written."""

from typing import NamedTuple

from fairlag.text.numerals import percent, significant

_WORDS = {"mse": "MSE", "mae": "MAE", "r2": "R²", "auroc": "AUROC", "macro_f1": "macro F1"}
"""Metrics whose usual spelling is not their name."""


class Scored(NamedTuple):
    """A metric of models.

    >>> ACCURACY.title, ACCURACY.written(0.5), ACCURACY.told(0.5), ACCURACY.level(0.6)
    ('accuracy %', '50.00', '50.00 %', '60 % accuracy')
    >>> error = Scored("mse", higher=False, rate=False)
    >>> error.title, error.written(0.5196, 0.0194), error.level(0.556)
    ('MSE', '0.5196 ±0.0194', 'an MSE of 0.556')
    """

    name: str
    higher: bool
    """Are higher values better?"""
    rate: bool
    """Is it a share of examples, which is written in per cent and has a standard error?"""

    @property
    def words(self) -> str:
        """Its name in a sentence."""
        return _WORDS.get(self.name, self.name.replace("_", " "))

    @property
    def some(self) -> str:
        """Its name in a sentence, with an article.

        >>> ACCURACY.some, Scored("macro_f1", True, False).some, Scored("r2", True, False).some
        ('an accuracy', 'a macro F1', 'an R²')
        """
        spelt = self.words[:2].isupper() and self.words[0] in "FHLMNRSX"
        return f"{'an' if spelt or self.words[0] in 'aeiouAEIO' else 'a'} {self.words}"

    @property
    def heading(self) -> str:
        """Its name as a title."""
        return self.words[:1].upper() + self.words[1:]

    @property
    def title(self) -> str:
        """Its name at the head of a column."""
        return f"{self.words} %" if self.rate else self.words

    def written(self, value: float | None, deviation: float | None = None) -> str:
        """A value as a cell of a table, and its standard deviation if given; the title has the sign of per cent."""
        return (percent if self.rate else significant)(value, deviation)

    def told(self, value: float) -> str:
        """A value in a sentence."""
        return f"{self.written(value)} %" if self.rate else self.written(value)

    def goal(self, value: float) -> str:
        """A target as a cell of a table."""
        return f"{100 * value:g} %" if self.rate else f"{value:,g}"

    def level(self, value: float) -> str:
        """A target in a sentence."""
        return f"{self.goal(value)} {self.words}" if self.rate else f"{self.some} of {self.goal(value)}"


COLUMNS = ("version", "time", "scope", "name", "examples", "whole", "standard_error")
"""The columns of evaluations that are no metrics."""
TAKEN = (
    *COLUMNS,
    *("jain", "jain_entitled", "staleness", "updates", "aggregations", "virtual_time", "best", "target"),
    *("share", "influence", "fair", "entitled", "per_presence", "group"),
    *(f"{name}{after}" for name in ("own_data", "worst_tenth", "group_gap") for after in ("", "_personalised")),
)
"""No metric can have one of these names: comparisons and trackers have something else under them."""
ACCURACY = Scored("accuracy", higher=True, rate=True)
"""The metric of runs that do not say which they have."""
LOSS = Scored("loss", higher=False, rate=False)
"""The mean of what training minimises; it is recorded beside every metric."""
