"""Data sets that the library `datasets` of Hugging Face saved to disk by `save_to_disk`; it is an extra."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlag.data.columns import located
from fairlag.data.dataset import Dataset
from fairlag.data.roles import Part, Roles, checked_roles
from fairlag.data.table import dataset
from fairlag.errors import InputError, nearest
from fairlag.extras import optional
from fairlag.limits import shown


def from_disk(
    folder: Path,
    path: str,
    target: str | list[str],
    input: str | list[str],
    split: str | None = None,
    test: str | None = None,
    client: str | None = None,
    time: str | None = None,
    shape: list[int] | None = None,
) -> Dataset:
    """The data set in a folder; `split` is for training and `test` is the official test part."""
    place = located(folder, path)
    roles = checked_roles(target, [input] if isinstance(input, str) else input, client, time)
    saved = _opened(place)
    train = _chosen(saved, split, place, "split")
    found = [train] if test is None else [train, _chosen(saved, test, place, "test")]
    parts = [_part(each, str(path), [*roles.taken, *(roles.features or ())]) for each in found]
    return dataset(parts, roles, shape, names=_class_names(train.features, roles))


def _class_names(features: Any, roles: Roles) -> tuple[str, ...]:
    """What the classes are called, if there is one target and it holds their numbers."""
    return tuple(getattr(features.get(roles.target), "names", None) or ())


def _opened(place: Path) -> Any:
    datasets = optional("datasets", "huggingface", 'use = "huggingface"')
    try:
        return datasets.load_from_disk(str(place))
    except Exception as error:  # it may raise anything on a damaged folder
        raise InputError(
            f"{str(place)!r} cannot be read as a data set of Hugging Face ({error}): write one by save_to_disk"
        ) from error


def _chosen(saved: Any, split: str | None, place: Path, key: str) -> Any:
    """One split, or the data set itself if it has none."""
    if not isinstance(saved, dict):
        if split is not None:
            raise InputError(f"{key} is {shown(split)}, but {str(place)!r} has no splits: leave `{key}` out")
        return saved
    if split not in saved:
        words = nearest(split, saved) if isinstance(split, str) else f"choose from {', '.join(saved)}"
        raise InputError(f"{key} is {shown(split)}, which is no split of {str(place)!r}: {words}")
    return saved[split]


def _part(saved: Any, name: str, wanted: list[str]) -> Part:
    """The columns that are wanted and there. One that is not is refused where it is used: a test part may lack some."""
    present = [each for each in wanted if each in saved.column_names]
    columns = saved.select_columns(present).with_format("numpy")[:] if present else {}
    return Part(name, {each: _array(columns[each], saved.features[each]) for each in present})


def _array(values: Any, feature: Any) -> NDArray[Any]:
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O" and not isinstance(array.flat[0], str | None.__class__):
            array = np.stack(list(array))
    except (ValueError, IndexError) as error:
        raise InputError(f"the examples are not one array: {error}") from None
    if type(feature).__name__ == "Image":  # pixels have the channels last, or there is only one
        array = np.expand_dims(array, 1) if array.ndim == 3 else np.moveaxis(array, -1, 1)
    return array.astype(object) if array.dtype.kind == "U" else array
