"""What travels between the server and a fleet: a task as a Flower message, and its reply as an update, or why not."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from numpy.typing import NDArray

from fairlag.core.types import Dispatch, Report, Update
from fairlag.core.vector import Layout, Vector
from fairlag.rules.admit import well_formed

ARRAYS, CONFIG, METRICS, EXAMPLES, STEPS = "arrays", "config", "metrics", "num-examples", "num-steps"
"""The names that Flower's own strategies give to what they send, and expect in a reply."""

NAME, PARTITION, GROUP = "name", "partition-id", "group"
"""What the configuration of a node may say of it."""

LONGEST_NAME = 200
"""How many bytes of what a node says of itself are kept, or put into the log."""

GREETING = f"{MessageType.QUERY}.fairlag"
"""The message that asks a node who it is."""

_KEPT = 2
"""How many versions are kept as Flower's records, each as big as the model: tasks of the same version share one."""

_HEADER = 512
"""More bytes than numpy writes before the values of an array."""

_TRIES = 10
"""How often an array is read where the interpreter itself fails, which happens once in some hundred thousand times."""

RAISED = 2
"""Flower's code for an exception in a ClientApp: what one says that does not know a question."""

_GREETING = 600.0
"""How many seconds a node has to say who it is before it is asked again; it may first have to finish a task."""

_FAILURES = {
    1: "its ClientApp could not be loaded",
    RAISED: "its ClientApp raised an exception",
    3: "its message expired",
    4: "its reply was lost",
    5: "its node went offline",
    6: "a modifier of its ClientApp refused it",
    7: "its node refused the app",
    8: "its ClientApp crashed",
}
"""Flower's error codes in words: how often each happened is counted, so no word of a client's own is in them."""


SILENT = "the SuperLink did not answer"
"""Why a task failed where not even an error came."""


class Told(NamedTuple):
    """What a client says of its update; nobody has checked it."""

    examples: int
    steps: int | None
    """How many local steps it made; None: it does not say."""
    loss: float


class Wire:
    """Turns tasks into messages and replies into updates, for a model of one layout.

    The arrays that are sent are those of the layout that are not `hidden`, under their names, and `fixed`: integer
    buffers and the like, which keep the server's value whatever comes back.
    """

    def __init__(
        self, layout: Layout, fixed: Mapping[str, NDArray[Any]] | None = None, hidden: frozenset[str] = frozenset()
    ) -> None:
        self._layout = layout
        self._changing = layout.parameters.size
        """How many numbers of a reply become changes; the rest are statistics, which stay the values they are."""
        self._fixed = {name: Array(np.asarray(each)) for name, each in (fixed or {}).items()}
        self._sent = [name for name in layout.names if name not in hidden]
        self._shapes = dict(zip(layout.names, layout.shapes, strict=True))
        self._records: OrderedDict[int, ArrayRecord] = OrderedDict()

    def task(
        self, task: Dispatch, parameters: Vector, asked: Mapping[str, Any], node: int, ttl: float | None
    ) -> Message:
        """What a node is sent: the arrays of the version, and what is asked of it."""
        config = ConfigRecord({"server-round": task.version + 1, "version": task.version, **asked})
        content = RecordDict({ARRAYS: self._record(task.version, parameters), CONFIG: config})
        return Message(content, dst_node_id=node, message_type=MessageType.TRAIN, ttl=ttl, group_id=str(task.version))

    def greeting(self, node: int) -> Message:
        """What a node is sent that was never seen before."""
        content = RecordDict({CONFIG: ConfigRecord()})
        return Message(content, dst_node_id=node, message_type=GREETING, ttl=_GREETING)

    def update(self, reply: Message, parameters: Vector, believed: Callable[[Told], Report]) -> Update | str:
        """The update in a reply to a task that began with these parameters, or why it is none, in words of ours.

        `believed` makes the report of what the client says of its update.
        """
        content = reply.content
        if len(content.array_records) != 1:
            return "it does not hold exactly one record of arrays"
        after = self._vector(next(iter(content.array_records.values())), parameters)
        if isinstance(after, str):
            return after
        told = _told(content.metric_records.values())
        if isinstance(told, str):
            return told
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
            after[: self._changing] -= parameters[: self._changing]
        update = Update(after, believed(told))
        return well_formed(update, self._layout.size) or update

    def _record(self, version: int, parameters: Vector) -> ArrayRecord:
        """The arrays of a version: made once, so that Flower sends what two tasks share only once."""
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
            array, shape = arrays[name], self._shapes[name]
            # Looked at before anything is unpacked: the size of what was announced, and of what came.
            if tuple(array.shape) != shape or len(array.data) > 4 * parts[name].size + _HEADER:
                return "an array has another shape than the one that was sent"
            if array.dtype != "float32":
                return "an array is not of float32"
            try:
                values = unpacked(array)
            except Exception:  # whatever numpy finds in bytes that were made up
                return "an array cannot be read"
            if values.shape != shape or values.dtype != np.float32:
                return "an array is not what it says it is"
            parts[name][...] = values
        return after


def unpacked(array: Array) -> NDArray[Any]:
    """The values of an array as it came; raises whatever numpy finds in bytes that were made up.

    numpy reads an array's header by Python's parser, and in early 3.11 and 3.12 that is disturbed where another thread
    parses at the same time (python/cpython#106905): a SystemError, which no client is to pay for.
    """
    for _ in range(_TRIES - 1):
        with suppress(SystemError):
            return array.numpy()
    return array.numpy()


def introduction(reply: Message) -> dict[str, Any]:
    """What a node says of itself; nothing where its app does not know the question.

    What is too long for a name is not said: it would be kept for ever, and written into every checkpoint.
    """
    said: Mapping[str, Any] = {} if reply.has_error() else reply.content.config_records.get(CONFIG, {})
    return {key: said[key] for key in (NAME, PARTITION, GROUP) if key in said and _is_short(said[key])}


def _is_short(value: object) -> bool:
    """Is it a number, or a text of a bounded number of bytes?"""
    if isinstance(value, str):
        return len(value) <= LONGEST_NAME and len(value.encode(errors="replace")) <= LONGEST_NAME
    return isinstance(value, int | float)


def reason(reply: Message) -> str:
    """What a node says about its failure, as far as it is put into the log."""
    return "".join(each if each.isprintable() else " " for each in (reply.error.reason or "")[:LONGEST_NAME])


def failure(reply: Message) -> str:
    """Why a task failed, in words of ours."""
    return _FAILURES.get(reply.error.code, "its node reported an error")


def _told(records: Any) -> Told | str:
    """What a client says of its update, in whichever of its records of metrics."""
    said: dict[str, Any] = {}
    for record in records:
        assert isinstance(record, MetricRecord)
        said |= record
    examples, steps = _whole(said.get(EXAMPLES)), _whole(said.get(STEPS))
    if examples is None:
        return f"its metrics have no whole number {EXAMPLES}"
    if steps is None and STEPS in said:
        return f"its {STEPS} is no whole number"
    loss = said.get("loss", said.get("train_loss", 0.0))
    return Told(examples, steps, float(loss) if isinstance(loss, int | float) else -1.0)


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and value == value // 1 else None
