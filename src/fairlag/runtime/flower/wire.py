"""Conversion between the server and a fleet: tasks to Flower messages, and replies to updates, or to refusals."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import prod
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from numpy.typing import NDArray

from fairlag.core.types import Dispatch, Report, Update
from fairlag.core.vector import Layout, Vector
from fairlag.rules.admit import well_formed

ARRAYS, CONFIG, METRICS, EXAMPLES, STEPS = "arrays", "config", "metrics", "num-examples", "num-steps"
"""The names of records that Flower's own strategies send, and expect in a reply."""

START_LOSS = "start-loss"
"""The metric with the mean loss of a client's examples before training, and the configuration that asks for it."""

NAME, PARTITION, GROUP = "name", "partition-id", "group"
"""The keys of a node's configuration that identify it."""

LONGEST_NAME = 200
"""The most bytes of a node's own text that are kept or logged."""

GREETING = f"{MessageType.QUERY}.fairlag"
"""The message that asks a node for its name."""

_KEPT = 2
"""How many versions are kept as Flower records, each as large as the model: tasks of the same version share one."""

_HEADER = 512
"""An upper bound on the bytes that numpy writes before the values of an array."""

_TRIES = 10
"""How often an array is read if the interpreter itself fails, which happens once in some hundred thousand reads."""

RAISED = 2
"""Flower's code for an exception in a ClientApp: also the answer of one that does not know a question."""

_GREETING = 600.0
"""Seconds until a node is asked for its name again; it may have to finish a task first."""

_FAILURES = {
    1: "its ClientApp could not be loaded",
    RAISED: "its ClientApp raised an exception",
    3: "the SuperLink no longer had its message",
    4: "its reply was lost",
    5: "its node went offline",
    6: "a modifier of its ClientApp refused it",
    7: "its node refused the app",
    8: "its ClientApp crashed",
}
"""Flower's error codes in words. They contain no text from a client, because they are counted."""


SILENT = "the SuperLink did not answer"
"""Why a task failed if no reply came at all."""


class Told(NamedTuple):
    """What a client says about its update, unchecked."""

    examples: int
    steps: int | None
    """How many local steps it made; None if it does not say."""
    loss: float
    start_loss: float | None = None
    """The mean loss of its examples at the model that it received; None if it does not say."""


class Wire:
    """Turns tasks into messages and replies into updates, for a model of one layout.

    It sends the arrays of the layout that are not `hidden`, under their names, and the `fixed` ones, such as integer
    buffers, which keep the server's value whatever the reply contains.
    """

    def __init__(
        self, layout: Layout, fixed: Mapping[str, NDArray[Any]] | None = None, hidden: frozenset[str] = frozenset()
    ) -> None:
        self._layout = layout
        self._changing = layout.parameters.size
        """How many numbers of a reply become changes; the rest are statistics, which stay values."""
        self._fixed = {name: Array(np.asarray(each)) for name, each in (fixed or {}).items()}
        self._sent = [name for name in layout.names if name not in hidden]
        self._shapes = dict(zip(layout.names, layout.shapes, strict=True))
        self._records: OrderedDict[int, ArrayRecord] = OrderedDict()

    def task(
        self, task: Dispatch, parameters: Vector, asked: Mapping[str, Any], node: int, ttl: float | None
    ) -> Message:
        """The message of a task: the arrays of the version, and the configuration."""
        config = ConfigRecord(configured(task, asked))
        content = RecordDict({ARRAYS: self._record(task.version, parameters), CONFIG: config})
        return Message(content, dst_node_id=node, message_type=MessageType.TRAIN, ttl=ttl, group_id=str(task.version))

    def greeting(self, node: int) -> Message:
        """The message to a node that was never seen before."""
        content = RecordDict({CONFIG: ConfigRecord()})
        return Message(content, dst_node_id=node, message_type=GREETING, ttl=_GREETING)

    def update(self, reply: Message, parameters: Vector, believed: Callable[[Told], Report | str]) -> Update | str:
        """The update in a reply to a task that started from these parameters, or the reason why it is none.

        `believed` turns what the client says about its update into a report, or says why it is refused.
        """
        content = reply.content
        if len(content.array_records) != 1:
            return "it does not hold exactly one record of arrays"
        told = _statements(content.metric_records.values())
        if isinstance(told, str):
            return told
        report = believed(told)
        if isinstance(report, str):
            return report
        return self._update(next(iter(content.array_records.values())), parameters, report)

    def _update(self, arrays: ArrayRecord, parameters: Vector, report: Report) -> Update | str:
        after = self._vector(arrays, parameters)
        if isinstance(after, str):
            return after
        with np.errstate(over="ignore", invalid="ignore"):  # values that are not finite are refused later
            after[: self._changing] -= parameters[: self._changing]
        update = Update(after, report)
        return well_formed(update, self._layout.size) or update

    def _record(self, version: int, parameters: Vector) -> ArrayRecord:
        """The arrays of a version, made once: Flower sends an object that two tasks share only once."""
        if version not in self._records:
            parts = self._layout.split(parameters)
            arrays = {name: Array(np.ascontiguousarray(parts[name])) for name in self._sent}
            self._records[version] = ArrayRecord({**arrays, **self._fixed})
            if len(self._records) > _KEPT:
                self._records.popitem(last=False)
        return self._records[version]

    def _vector(self, arrays: ArrayRecord, parameters: Vector) -> Vector | str:
        if set(arrays) != {*self._sent, *self._fixed}:
            return "its arrays are not named as those that were sent"
        after = parameters.copy()
        parts = self._layout.split(after)
        for name in self._sent:
            values = read(arrays[name], self._shapes[name], np.float32)
            if isinstance(values, str):
                return values
            parts[name][...] = values
        return after


def configured(task: Dispatch, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What whoever trains a task is told, besides the arrays: its version, and what is asked of it."""
    return {"server-round": task.version + 1, "version": task.version, **asked}


def read(array: Array, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any] | str:
    """The values of a received array, which must have this shape and type; or why it cannot be read."""
    kind = np.dtype(dtype)
    # Checked before anything is unpacked: the announced size, and the size of the bytes.
    if tuple(array.shape) != shape or len(array.data) > kind.itemsize * prod(shape) + _HEADER:
        return "an array has a different shape than the one that was sent"
    if array.dtype != kind.name:
        return f"an array is not {kind.name}"
    try:
        values = unpacked(array)
    except Exception:  # numpy may raise anything on forged bytes
        return "an array cannot be read"
    if values.shape != shape or values.dtype != kind:
        return "an array is not what it says it is"
    return values


def unpacked(array: Array) -> NDArray[Any]:
    """The values of a received array; numpy may raise anything on forged bytes.

    numpy reads an array's header with Python's parser. In early versions of Python 3.11 and 3.12 it may raise a
    SystemError if another thread parses at the same time (python/cpython#106905): that is not the client's fault.
    """
    for _ in range(_TRIES - 1):
        with suppress(SystemError):
            return array.numpy()
    return array.numpy()


def introduction(reply: Message) -> dict[str, Any]:
    """The configuration that a node gives to identify itself; empty if its app does not know the question.

    Values that are too long for a name are left out: they would be kept for ever, in every checkpoint.
    """
    values: Mapping[str, Any] = {} if reply.has_error() else reply.content.config_records.get(CONFIG, {})
    return {key: values[key] for key in (NAME, PARTITION, GROUP) if key in values and _is_short(values[key])}


def _is_short(value: object) -> bool:
    """Is it a number, or a text of a bounded number of bytes?"""
    if isinstance(value, str):
        return len(value) <= LONGEST_NAME and len(value.encode(errors="replace")) <= LONGEST_NAME
    return isinstance(value, int | float)


def reason(reply: Message) -> str:
    """What a node says about its failure, shortened for the log."""
    return "".join(each if each.isprintable() else " " for each in (reply.error.reason or "")[:LONGEST_NAME])


def failure(reply: Message) -> str:
    """Why a task failed, in our own words."""
    return _FAILURES.get(reply.error.code, "its node reported an error")


def _statements(records: Any) -> Told | str:
    """What a client says about its update, in any of its metric records."""
    values: dict[str, Any] = {}
    for record in records:
        assert isinstance(record, MetricRecord)
        values |= record
    examples, steps = _whole(values.get(EXAMPLES)), _whole(values.get(STEPS))
    if examples is None:
        return f"its metrics have no whole number {EXAMPLES}"
    if steps is None and STEPS in values:
        return f"its {STEPS} is not a whole number"
    loss = values.get("loss", values.get("train_loss", 0.0))
    start = values.get(START_LOSS)
    return Told(
        examples,
        steps,
        float(loss) if isinstance(loss, int | float) else -1.0,
        float(start) if isinstance(start, int | float) else None,
    )


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and value == value // 1 else None
