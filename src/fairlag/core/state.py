"""State that can be saved: trees of plain values and arrays, their conversion to arrays and JSON, and back."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairlag.core.vector import Matrix, Vector
from fairlag.errors import InputError


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """A matrix as its rows, which never change and may be large, so that saving the same rows again can be avoided.

    >>> stack = Stack((np.ones(2, np.float32), np.zeros(2, np.float32)), 2)
    >>> stack.shape, stack.matrix.tolist()
    ((2, 2), [[1.0, 1.0], [0.0, 0.0]])
    """

    rows: tuple[Vector, ...]
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows, and their length."""
        return len(self.rows), self.width

    @property
    def nbytes(self) -> int:
        """The number of bytes of all rows."""
        return 4 * len(self.rows) * self.width

    @property
    def matrix(self) -> Matrix:
        """A copy as one array."""
        return np.array(self.rows, np.float32).reshape(self.shape)

    def __iter__(self) -> Iterator[Vector]:
        return iter(self.rows)


Plain = int | float | str | bool | None
Leaf = NDArray[Any] | Stack | Plain | list[Plain]
State: TypeAlias = dict[str, "Leaf | State"]

Kind = TypeVar("Kind")


class Savable(Protocol):
    """An object whose state can be saved between two events and restored into a new object built the same way."""

    def state(self) -> State:
        """Everything that the object remembers. Later changes of the object do not change the returned state."""

    def restore(self, state: State) -> None:
        """Replaces what the object remembers. Later changes of the object do not change the given state."""


def pack(state: State) -> tuple[dict[str, NDArray[Any]], str]:
    """A state as its arrays, by path, and the rest as JSON (Python's, which allows NaN and infinities).

    >>> pack({"server": {"weights": np.ones(2), "time": 0.5}})
    ({'server/weights': array([1., 1.])}, '{"server": {"time": 0.5}}')
    """
    arrays, text = parted(state)
    return {path: each.matrix if isinstance(each, Stack) else each for path, each in arrays.items()}, text


def parted(state: State) -> tuple[dict[str, NDArray[Any] | Stack], str]:
    """As `pack`, but without copying stacks into arrays.

    >>> stack = Stack((np.ones(2, np.float32),), 2)
    >>> parted({"server": {"rows": stack, "time": 0.5}})[0]["server/rows"] is stack
    True
    """
    arrays: dict[str, NDArray[Any] | Stack] = {}
    return arrays, json.dumps(_without_arrays(state, "", arrays))


def _without_arrays(state: State, path: str, arrays: dict[str, NDArray[Any] | Stack]) -> dict[str, object]:
    """The state without its arrays, which are moved into `arrays` by path."""
    rest: dict[str, object] = {}
    for name, value in state.items():
        if "/" in name:
            raise InputError(f"the name {name!r} in a state has a slash, which separates names")
        if isinstance(value, dict):
            rest[name] = _without_arrays(value, f"{path}{name}/", arrays)
        elif isinstance(value, Stack) or (isinstance(value, np.ndarray) and value.dtype.kind in "biuf"):
            arrays[path + name] = value
        elif all(isinstance(part, Plain) for part in (value if isinstance(value, list) else [value])):
            rest[name] = value
        else:
            raise InputError(f"{path}{name} is {value!r}: only numbers, strings, and arrays of numbers can be saved")
    return rest


def unpack(arrays: Mapping[str, NDArray[Any] | Stack], text: str) -> State:
    """The state that was packed.

    >>> unpack({"server/weights": np.ones(2)}, '{"server": {"time": 0.5}}')
    {'server': {'time': 0.5, 'weights': array([1., 1.])}}
    """
    state: State = json.loads(text)
    for path, array in arrays.items():
        *above, name = path.split("/")
        inner = state
        for each in above:
            inner = take(inner, each, dict)
        inner[name] = array
    return state


def take(state: State, name: str, kind: type[Kind]) -> Kind:
    """The value with this name, which must have this type.

    >>> take({"time": 0.5}, "time", float)
    0.5
    >>> take({"time": 0.5}, "version", int)
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: the saved state has no int named 'version': something else saved it
    """
    value = state.get(name)
    if not isinstance(value, (int, float) if kind is float else kind):
        raise InputError(f"the saved state has no {kind.__name__} named {name!r}: something else saved it")
    return value  # type: ignore[return-value]  # an int is accepted as a float


def copy_into(array: NDArray[Any], state: State, name: str) -> None:
    """Overwrites an array with the saved one of this name, which must have the same shape.

    >>> array = np.zeros(2)
    >>> copy_into(array, {"weights": np.array([0.5, 2.0])}, "weights")
    >>> array.tolist()
    [0.5, 2.0]
    """
    saved = take(state, name, np.ndarray)
    if saved.shape != array.shape:
        raise InputError(f"the saved {name!r} has shape {saved.shape}, it must have shape {array.shape}")
    array[...] = saved


def table(rows: Collection[tuple[Any, ...]], **kinds: type) -> State:
    """Rows of numbers as one array per column, because there may be a million rows.

    >>> table([(1, 0.5), (2, 0.25)], client=int, time=float)
    {'client': array([1, 2]), 'time': array([0.5 , 0.25])}
    """
    return {name: np.array([row[place] for row in rows], kind) for place, (name, kind) in enumerate(kinds.items())}


def rows(state: State, *names: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table: the inverse of `table`.

    >>> list(rows(table([(1, 0.5), (2, 0.25)], client=int, time=float), "client", "time"))
    [(1, 0.5), (2, 0.25)]
    """
    return zip(*(take(state, name, np.ndarray).tolist() for name in names), strict=True)


def leaves(structure: object) -> list[Leaf]:
    """The numbers and copies of the arrays in nested tuples, lists and dictionaries, in order.

    >>> leaves((1, {"momentum": np.ones(2), "count": [3, None]}))
    [1, 3, None, array([1., 1.])]
    """
    if isinstance(structure, np.ndarray | np.generic):
        return [np.array(structure)]
    if isinstance(structure, Plain):
        return [structure]
    if isinstance(structure, dict):
        structure = [structure[name] for name in sorted(structure)]
    if isinstance(structure, list | tuple):
        return [leaf for part in structure for leaf in leaves(part)]
    raise InputError(f"{structure!r} cannot be saved, only arrays and numbers in tuples, lists and dictionaries can")


def refill(structure: Kind, saved: Sequence[Leaf]) -> Kind:
    """The same structure with saved leaves: the inverse of `leaves`.

    >>> refill((0, {"momentum": np.zeros(2)}), [1, np.ones(2)])
    (1, {'momentum': array([1., 1.])})
    >>> refill((0,), [1, 2])
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: there are 2 saved values, there must be 1
    """
    count = len(leaves(structure))
    if len(saved) != count:
        raise InputError(f"there are {len(saved)} saved values, there must be {count}")
    filled: Kind = _refilled(structure, iter(saved))
    return filled


def _refilled(structure: Any, saved: Iterator[Leaf]) -> Any:
    if isinstance(structure, dict):
        parts = {name: _refilled(structure[name], saved) for name in sorted(structure)}
        return {name: parts[name] for name in structure}
    if isinstance(structure, list):
        return [_refilled(part, saved) for part in structure]
    if isinstance(structure, tuple):
        values = tuple(_refilled(part, saved) for part in structure)
        return structure._make(values) if hasattr(structure, "_make") else values
    return _filled(structure, next(saved))


def _filled(old: Any, leaf: Any) -> Any:
    """The leaf as it was before it was saved, in the place of `old`; None accepts any leaf."""
    if old is not None and np.shape(old) != np.shape(leaf):
        raise InputError(f"a saved value has shape {np.shape(leaf)}, it must have shape {np.shape(old)}")
    if not isinstance(leaf, np.ndarray):
        return leaf
    # `leaves` turns numpy's own numbers, such as float32(0.5), into arrays without dimensions.
    return leaf.copy() if leaf.ndim or isinstance(old, np.ndarray) else leaf[()]
