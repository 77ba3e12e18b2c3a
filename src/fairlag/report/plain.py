"""A table as one record of texts, and how a terminal, LaTeX, Markdown and CSV write it."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from fairlag.errors import InputError
from fairlag.limits import printable

FORMATS = ("latex", "markdown", "csv", "json")


@dataclass(frozen=True, slots=True)
class PlainTable:
    """A table of texts. Its first columns are words, which are aligned left; the others are numbers."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    """How to read it, and what a reader must know."""
    words: int = 1
    """The number of columns of words."""


def plain_terminal(plain: PlainTable) -> Table:
    """The rows of a table for a terminal."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for place, name in enumerate(plain.head):
        table.add_column(Text(name), justify="left" if place < plain.words else "right", overflow="fold")
    for row in plain.rows:
        table.add_row(*map(Text, row))
    return table


def check_export(form: str | None) -> str | None:
    """Refuses any format of a table but those of `FORMATS`."""
    if form is not None and form not in FORMATS:
        raise InputError(f"--export is {form!r}, it must be one of {', '.join(FORMATS)}")
    return form


def exported(form: str, tables: Sequence[PlainTable], data: Sequence[Mapping[Any, Any]]) -> str:
    """Tables as LaTeX or Markdown; as CSV, the numbers behind them, one line per record and not rounded."""
    if form == "csv":
        import pandas as pd

        return printable(pd.DataFrame(data).to_csv(index=False).rstrip("\n"))
    return printable("\n\n".join(map({"latex": latex, "markdown": markdown}[form], tables)))


def markdown(table: PlainTable) -> str:
    """A table in Markdown, with its title above and its notes below.

    >>> print(markdown(PlainTable("Ranks", ("strategy", "a|b"), (("FedAvg", "1"),), ("b: lower is better",))))
    **Ranks**
    <BLANKLINE>
    | strategy | a\\|b |
    | :--- | ---: |
    | FedAvg | 1 |
    <BLANKLINE>
    b: lower is better.
    """
    sides = [":---" if place < table.words else "---:" for place in range(len(table.head))]
    rows = (table.head, sides, *table.rows)
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines[1] = lines[1].replace("\\|", "|")
    notes = ["", "  \n".join(f"{note.rstrip('.')}." for note in table.notes)] if table.notes else []
    return "\n".join([f"**{table.title}**", "", *lines, *notes])


_LONG, _WRAPPED = 40, r"p{0.35\linewidth}"
"""A column with a longer text than this is wrapped."""


def latex(table: PlainTable) -> str:
    """A table in LaTeX; it needs the package booktabs.

    >>> print(latex(PlainTable("Ranks", ("strategy", "accuracy %"), (("A_1", "92.00 ±1.58"),), ("p < 0.05",))))
    \\begin{table}
    \\centering
    \\caption{Ranks}
    \\begin{tabular}{lr}
    \\toprule
    strategy & accuracy \\% \\\\
    \\midrule
    A\\_1 & 92.00 $\\pm$1.58 \\\\
    \\bottomrule
    \\end{tabular}
    \\par\\smallskip
    \\begin{minipage}{\\linewidth}\\footnotesize
    p $<$ 0.05.
    \\end{minipage}
    \\end{table}
    """
    wide = [max((len(row[place]) for row in table.rows), default=0) > _LONG for place in range(table.words)]
    sides = "".join(_WRAPPED if each else "l" for each in wide) + "r" * (len(table.head) - table.words)
    head, *rows = (" & ".join(map(escaped, row)) + r" \\" for row in (table.head, *table.rows))
    notes = [f"{escaped(note.rstrip('.'))}." for note in table.notes]
    below = [r"\par\smallskip", r"\begin{minipage}{\linewidth}\footnotesize", *notes, r"\end{minipage}"]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escaped(table.title)}}}",
            rf"\begin{{tabular}}{{{sides}}}",
            *(r"\toprule", head, r"\midrule", *rows, r"\bottomrule"),
            r"\end{tabular}",
            *(below if notes else []),
            r"\end{table}",
        ]
    )


_LATIN = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True))
"""Greek letters for which LaTeX has no command, because they look like Latin ones."""


def _greek(letter: str) -> str:
    name = unicodedata.name(letter).split()[-1].replace("LAMDA", "LAMBDA")  # Unicode spells it otherwise
    command = "\\" + (name.capitalize() if letter.isupper() else name.lower())
    return f"$\\mathrm{{{_LATIN[letter]}}}$" if letter in _LATIN else f"${command}$"


_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "…": r"\ldots{}",
    "\N{NO-BREAK SPACE}": "~",
    "[": "{[}",  # after a line break, a bracket would be its argument
    **{letter: _greek(letter) for letter in "αβγδεζηθικλμνξοπρςστυφχψωΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩ"},
    **{
        sign: f"${name}$"
        for sign, name in {
            "<": "<",
            ">": ">",
            "±": r"\pm",
            "×": r"\times",
            "÷": r"\div",
            "≥": r"\geq",
            "≤": r"\leq",
            "−": "-",
            "·": r"\cdot",
            "²": "^2",
            "→": r"\to",
            "≠": r"\neq",
            "≈": r"\approx",
            "∞": r"\infty",
        }.items()
    },
}
"""How LaTeX writes characters that mean something else to it, or that its fonts do not have."""


def escaped(text: str) -> str:
    """A text as LaTeX prints it; letters of other scripts need XeLaTeX or LuaLaTeX.

    >>> escaped("50 % of a_b"), escaped("R² ≥ 0.5")
    ('50 \\\\% of a\\\\_b', 'R$^2$ $\\\\geq$ 0.5')
    """
    return "".join(_LATEX.get(each, each) for each in text)
