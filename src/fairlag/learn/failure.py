"""Errors raised by a user's own model: one sentence with file and line, and the traceback on request."""

import os
import sysconfig
import traceback
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np
import torch

_FOLDERS = [Path(__file__).parents[1], *(Path(str(each.__file__)).parent for each in (torch, np))]
_LIBRARIES = tuple(f"{folder}{os.sep}" for folder in _FOLDERS)
_PYTHON = f"{sysconfig.get_path('stdlib')}{os.sep}"
_INSTALLED = f"{os.sep}site-packages{os.sep}"


class Failure(NamedTuple):
    """What a worker returns instead of a result."""

    sentence: str
    trace: str

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        """Made from an exception that was caught."""
        return cls(reason(error), "".join(traceback.format_exception(error)))

    @property
    def cause(self) -> Exception:
        """The cause to raise an error from: it shows where the error happened in the worker."""
        return Exception(f"in a worker\n{self.trace}")


def reason(error: Exception) -> str:
    """An exception of the model's own code, in one line.

    >>> reason(ValueError("no\\nsuch layer"))
    'ValueError: no such layer'
    """
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where(error)}"


def where(error: Exception) -> str:
    """The last line of the user's own code in the traceback; empty if there is none."""
    for step in reversed(traceback.extract_tb(error.__traceback__)):
        if not _is_of_a_library(step.filename):
            return f" ({PurePath(step.filename).name}, line {step.lineno})"
    return ""


def _is_of_a_library(file: str) -> bool:
    """Is it a file of fairlag, torch, NumPy or Python? Other installed packages may be the user's."""
    return file.startswith(("<frozen", *_LIBRARIES)) or (file.startswith(_PYTHON) and _INSTALLED not in file)
