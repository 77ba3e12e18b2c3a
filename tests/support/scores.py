"""Scores of a classification, from what was counted."""

from math import nan

from fairlag.lab.store import Score


def scored(scope: str, name: str, examples: int, correct: int, loss: float, whole: bool = False) -> Score:
    """So many of the examples were right, and this is their mean loss."""
    return Score(scope, name, examples, {"accuracy": correct / examples if examples else nan, "loss": loss}, whole)
