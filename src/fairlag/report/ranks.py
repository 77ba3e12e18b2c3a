"""What a figure of mean ranks says below it, for papers and for the page."""

from fairlag.analyse.ranks import Ranks
from fairlag.analyse.significance import LEVEL, p_in_words


def about_ranks(found: Ranks) -> str:
    """How to read it, which runs failed, and which pairs of experiment and seed are left out."""
    words = f"Mean over {found.blocks} pairs of experiment and seed (Friedman's test: {p_in_words(found.p)}). "
    if found.p >= LEVEL:
        words += "The strategies are not distinguishable."
    else:
        words += f"Bars at the right join strategies that are not distinguishable (Nemenyi's test, p ≥ {LEVEL:g})."
    if found.failed:
        words += f" Failed runs have the last rank: {'; '.join(found.failed)}."
    if found.left_out:
        words += f" Left out, because not all strategies have finished: {'; '.join(found.left_out)}."
    return words
