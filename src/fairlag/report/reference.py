"""Every key of an experiment file in Markdown: the whole text of docs/reference.md."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from math import isinf
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fairlag.data.load import DATASETS, FILES, known
from fairlag.data.load import PARAMETERS as FILE_PARAMETERS
from fairlag.data.partition import PARTITIONS
from fairlag.data.stream import STREAMS
from fairlag.fleet.availability import AVAILABILITIES
from fairlag.fleet.capacity import CAPACITIES
from fairlag.fleet.delay import DELAYS
from fairlag.fleet.timing import TIMINGS
from fairlag.lab.attacks import Attack
from fairlag.lab.clients import Clients
from fairlag.lab.experiment import Experiment
from fairlag.lab.learning import Data, Evaluate, LocalTraining, Model, TaskTable
from fairlag.lab.privacy import Privacy
from fairlag.lab.strategies import Use
from fairlag.lab.sweep.table import Sweep
from fairlag.learn.behave import BEHAVIOURS
from fairlag.learn.local import SCHEDULES
from fairlag.learn.within import WITHIN
from fairlag.report.algorithms import written
from fairlag.zoo import ALGORITHMS
from fairlag.zoo.defences import DEFENCES
from fairlag.zoo.parameters import PARAMETERS

TABLES: Mapping[str, type[BaseModel]] = {
    "": Experiment,
    "[[clients]]": Clients,
    "[[strategies]]": Use,
    "[[attacks]]": Attack,
    "[data]": Data,
    "[model]": Model,
    "[task]": TaskTable,
    "[local]": LocalTraining,
    "[evaluate]": Evaluate,
    "[privacy]": Privacy,
    "[sweep]": Sweep,
}
"""The tables of an experiment file, by their headers."""

WORDS: Mapping[str, Mapping[str, Callable[..., object]]] = {
    "Partitions": PARTITIONS,
    "Streams": STREAMS,
    "Delays": DELAYS,
    "Capacities": CAPACITIES,
    "Availabilities": AVAILABILITIES,
    "Timings": TIMINGS,
    "Behaviours": BEHAVIOURS,
    "Defences": DEFENCES,
    "Schedules": SCHEDULES,
    "Schedules within a task": WITHIN,
}
"""Values that are written as calls, by heading."""

_HEAD = """# Experiment files: every key

Generated from the code by `fairlag reference > docs/reference.md`; a test fails if it is out of date. `fairlag presets
demo` prints a whole file to start from. `--set local.lr=0.05` changes any key for one command: `clients.slow.count=7`
names a group, `strategies.FedBuff.buffer=5` a strategy. An unknown key is refused, with the nearest known one.

"""

_LEADS = {
    "": "## The file\n\nKeys outside any table.\n",
    "[[clients]]": "## Clients\n\n`[[clients]]`: one table per group of similar clients.\n",
    "[[strategies]]": (
        "## Strategies\n\n`[[strategies]]`: one table per strategy. Further keys are its parameters, with the defaults "
        "below; [algorithms.md](algorithms.md) has formulas and references.\n"
    ),
    "[[attacks]]": "## Attacks\n\n`[[attacks]]`: one table per attack that [`fairlag attack`](siege.md) tries.\n",
    "[data]": "## Data\n\n`[data]`: the training data. Further keys are parameters of the data set.\n",
    "[model]": "## Model\n\n`[model]`: the model that is trained. Further keys are parameters of the model.\n",
    "[task]": "## Task\n\n`[task]`: what is to be learnt. Further keys are parameters of the task.\n",
    "[local]": "## Local\n\n`[local]`: how a client trains the model that it receives.\n",
    "[evaluate]": "## Evaluate\n\n`[evaluate]`: how often the model is tested, and on how much.\n",
    "[privacy]": "## Privacy\n\n`[privacy]`: what hides single clients from the server, and from the model.\n",
    "[sweep]": "## Sweep\n\n`[sweep]`: what [`fairlag sweep`](sweeps.md) tries.\n",
}

_OWN = """## Your own data set

`use = "module:function"` in `[data]`: the function returns `(inputs, labels)`, or `(inputs, labels, test inputs, test
labels)`. Inputs are one array of numbers, one example per row; labels are whole numbers from 0, or what the
[task](#task) needs, such as numbers for a regression. Token ids are int64 inputs of a `Dataset`. The module is looked
up beside the experiment file. [`examples/own_data.toml`](../examples/own_data.toml) uses
[`examples/own_data.py`](../examples/own_data.py).

## Your own model

`use = "module:function"` in `[model]`: the function returns a `torch.nn.Module` with one output per label. If it has
parameters named `shape` and `classes`, it gets those of the data.
[`examples/own_model.toml`](../examples/own_model.toml) uses [`examples/own_model.py`](../examples/own_model.py).

## Your own task

`use = "module:function"` in `[task]`: the function returns a [`fairlag.Task`](api.md#fairlag.Task), for example a
built-in one with a further metric ([guide](own-task.md)).
[`examples/own_everything.toml`](../examples/own_everything.toml) uses
[`examples/own_everything.py`](../examples/own_everything.py).

## Your own strategy

`use = "module:function"` in `[[strategies]]`: a weighting of `(buffer, view)`, as in
[`examples/my_rules.py`](../examples/my_rules.py), or a function that returns a `Strategy`. It may replace any
part: who trains, when updates are merged, how much they weigh, and what the server does with the step.
[`examples/own_server_rule.toml`](../examples/own_server_rule.toml) uses a server rule from
[`examples/own_server_rule.py`](../examples/own_server_rule.py).
"""


def reference() -> str:
    """The whole page.

    >>> reference().splitlines()[0]
    '# Experiment files: every key'
    """
    parts = []
    for name, model in TABLES.items():
        parts.append(_LEADS[name] + "\n" + _keys(model))
        parts += _CHOICES.get(name, list)()
    parts += [f"## {heading}\n\n{_calls(makers)}" for heading, makers in WORDS.items()]
    return _HEAD + "\n".join([*parts, _OWN])


def _keys(model: type[BaseModel]) -> str:
    rows = (
        (f"`{name}`", _accepts(field), _default(field), field.description or "")
        for name, field in model.model_fields.items()
    )
    return _table(("key", "accepts", "default", "what it does"), rows)


_KINDS: Mapping[Any, str] = {bool: "true or false", int: "whole number", float: "number", str: "text", tuple: "list"}
_SIGNS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def _accepts(field: FieldInfo) -> str:
    """The kind of a value and its limits; empty if the description says what is accepted."""
    inner = [each for each in (field.annotation, *_inside(field.annotation)) if each is not NoneType]
    if any(isinstance(each, type) and issubclass(each, BaseModel) for each in inner):
        return "tables" if get_origin(field.annotation) is tuple else "table"
    kind = next((_KINDS[found] for each in inner if (found := get_origin(each) or each) in _KINDS), "")
    limits = [(sign, getattr(each, name, None)) for each in field.metadata for name, sign in _SIGNS.items()]
    told = [f"{sign} {value:,}" for sign, value in limits if value is not None and not isinf(value)]
    return " ".join(filter(None, (kind, ", ".join(told))))


def _inside(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the items of a list."""
    return get_args(annotation) if isinstance(annotation, UnionType) or get_origin(annotation) is tuple else ()


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None or value == "" or isinstance(value, BaseModel | tuple):
        return ""
    return f"`{written(value)}`"


def _strategies() -> list[str]:
    rows = ((f"`{name}`", each.description, _defaults(each.parameters)) for name, each in ALGORITHMS.items())
    users = {
        name: [f"`{each.name}`" for each in ALGORITHMS.values() if name in each.parameters]
        for name in sorted({name for each in ALGORITHMS.values() for name in each.parameters})
    }
    meanings = ((f"`{name}`", PARAMETERS.get(name, ""), ", ".join(used)) for name, used in users.items())
    return [
        _table(("`use`", "what it does", "parameters"), rows),
        _table(("parameter", "what it does", "used by"), meanings),
    ]


def _datasets() -> list[str]:
    rows = []
    for each in known():
        parameters = inspect.signature(DATASETS[each.name]).parameters
        shape = "×".join(map(str, each.shape))
        size = "varies" if each.examples is None else f"{each.examples:,}"
        rows.append((f"`{each.name}`", each.what, size, shape, _defaults(parameters)))
    read = []
    for name, make in FILES.items():
        own = [f"`{key}`" for key in inspect.signature(make).parameters if key != "folder"]
        read.append((f"`{name}`", _first(make), ", ".join(own)))
    return [
        _table(("`use`", "what it is", "examples", "shape of one", "parameters"), rows),
        _table(("`use`", "your own files", "parameters"), read),
        _table(("parameter", "what it does"), ((f"`{name}`", words) for name, words in FILE_PARAMETERS.items())),
    ]


def _models() -> list[str]:
    models: Mapping[str, Callable[..., object]] = import_module("fairlag.learn.models").MODELS  # it needs torch
    rows = []
    for name, make in models.items():
        own = {key: each for key, each in inspect.signature(make).parameters.items() if key not in ("shape", "classes")}
        rows.append((f"`{name}`", _first(make), _defaults(own)))
    return [_table(("`use`", "what it is", "parameters"), rows)]


def _tasks() -> list[str]:
    tasks: Mapping[str, Callable[..., object]] = import_module("fairlag.learn.tasks").TASKS  # it needs torch
    rows = ((f"`{name}`", _first(make), _defaults(inspect.signature(make).parameters)) for name, make in tasks.items())
    return [_table(("`use`", "what it is", "parameters"), rows)]


def _defaults(parameters: Mapping[str, inspect.Parameter]) -> str:
    return ", ".join(f"`{name} = {written(each.default)}`" for name, each in parameters.items())


def _calls(makers: Mapping[str, Callable[..., object]]) -> str:
    """One row per call: each docstring begins with its spelling."""
    parts = (_first(make).removeprefix("``").partition("``: ") for make in makers.values())
    rows = ((f"`{call}`", meaning.replace("``", "`")) for call, _, meaning in parts)
    return _table(("written", "what it is"), rows)


def _first(make: Callable[..., object]) -> str:
    """The first paragraph of a docstring."""
    return " ".join((inspect.getdoc(make) or "").split("\n\n")[0].split())


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


_CHOICES: Mapping[str, Callable[[], list[str]]] = {
    "[[strategies]]": _strategies,
    "[data]": _datasets,
    "[model]": _models,
    "[task]": _tasks,
}
"""What `use` can be, by table."""
