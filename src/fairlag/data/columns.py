"""Files of named columns, as they are: CSV, Parquet, .npz and .safetensors. table.py makes data sets of them."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import NDArray

from fairlag.errors import FairlagError, InputError
from fairlag.extras import optional
from fairlag.limits import shown

if TYPE_CHECKING:
    import pandas as pd

Columns = dict[str, NDArray[Any]]
"""Arrays by name, with one row per example. Text is of the kind `O`, with None or NaN for what is missing."""

_MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>"]
"""What a CSV file may have in place of a number."""


def columns(folder: Path, path: object, verbatim: tuple[str, ...] = ()) -> Columns:
    """The columns of a file, whose extension says what it is; the path is relative to the folder.

    In a CSV file, only an empty cell of a `verbatim` column is missing: "NA" may be the name of a class or a client.
    """
    file = located(folder, path)
    if file.suffix.lower() not in _READERS:
        raise InputError(
            f"the data file {shown(path)} ends in {file.suffix!r}, but must end in {', '.join(_READERS)}: "
            "for anything else, write a function"
        )
    if not file.is_file():
        raise InputError(f"the data file {str(file)!r} {'is a folder' if file.is_dir() else 'does not exist'}")
    try:
        found = _READERS[file.suffix.lower()](file, verbatim)
    except FairlagError:
        raise
    except (Exception, MemoryError) as error:  # a decoder may raise anything on a damaged file
        words = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"the data file {str(file)!r} cannot be read as {file.suffix} ({words})") from error
    if not found:
        raise InputError(f"the data file {str(file)!r} has no columns")
    return found


def located(folder: Path, path: object) -> Path:
    """A path as the experiment file has it, relative to its folder.

    >>> located(Path("mine"), "train.csv").as_posix()
    'mine/train.csv'
    """
    if not isinstance(path, str | Path) or not str(path) or "\0" in str(path):
        raise InputError(f"the path of the data is {shown(path)}, but must be the name of a file, such as 'train.csv'")
    return folder / Path(path).expanduser()


def _csv(file: Path, verbatim: tuple[str, ...]) -> Columns:
    import pandas as pd

    # utf-8-sig, because spreadsheets write a byte-order mark first.
    common: dict[str, Any] = {"encoding": "utf-8-sig", "index_col": False}
    try:
        # Read as a row, because as a header pandas renames a column that is there twice.
        header = pd.read_csv(file, header=None, nrows=1, dtype=str, keep_default_na=False, **common)
        names = [str(name) for name in header.iloc[0]]
        _check_names(file, names)
        missing = {name: [""] if name in verbatim else _MISSING for name in names}
        with catch_warnings():
            simplefilter("error", pd.errors.ParserWarning)  # cells without a column would be dropped
            frame = pd.read_csv(file, na_values=missing, keep_default_na=False, low_memory=False, **common)
    except pd.errors.EmptyDataError:
        raise InputError(f"the data file {str(file)!r} is empty: its first line must name the columns") from None
    return _of_frame(frame, names)


def _parquet(file: Path, _: tuple[str, ...]) -> Columns:
    import pandas as pd

    optional("pyarrow.parquet", "parquet", f"reading {file.name!r}")
    frame = pd.read_parquet(file, engine="pyarrow")
    names = [str(name) for name in frame.columns]
    _check_names(file, names)
    return _of_frame(frame, names)


def _npz(file: Path, _: tuple[str, ...]) -> Columns:
    try:
        arrays = np.load(file, allow_pickle=False)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise InputError(f"the data file {str(file)!r} holds one array without a name: save it by numpy.savez")
        with arrays:
            return {name: _checked(file, name, arrays[name]) for name in arrays.files}
    except ValueError as error:
        if "pickle" not in str(error):
            raise
        raise InputError(
            f"the data file {str(file)!r} holds pickled Python objects, which are never read: save arrays of numbers "
            "or text"
        ) from None


def _safetensors(file: Path, _: tuple[str, ...]) -> Columns:
    from safetensors.numpy import load_file

    return {name: _checked(file, name, array) for name, array in load_file(file).items()}


_READERS: Mapping[str, Callable[[Path, tuple[str, ...]], Columns]] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".npz": _npz,
    ".safetensors": _safetensors,
}


def _of_frame(frame: "pd.DataFrame", names: list[str]) -> Columns:
    return {name: frame.iloc[:, place].to_numpy() for place, name in enumerate(names)}


def _check_names(file: Path, names: list[str]) -> None:
    if "" in names:
        raise InputError(
            f"column {names.index('') + 1} of the data file {str(file)!r} has no name: give it one, or save the file "
            "without an index"
        )
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"the data file {str(file)!r} has two columns named {shown(twice[0])}: rename one")


def _checked(file: Path, name: str, array: NDArray[Any]) -> NDArray[Any]:
    """An array with at least one axis; text as objects, like the text of a CSV file."""
    if not array.ndim:
        raise InputError(f"the array {shown(name)} of the data file {str(file)!r} is a single number, not a column")
    return array.astype(object) if array.dtype.kind == "U" else array
