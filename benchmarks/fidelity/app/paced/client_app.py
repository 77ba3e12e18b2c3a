"""The client: softmax regression in numpy, because each message starts a process and importing torch takes seconds.

Beside its data, it notes about each task when the server made the message, when this process started, when the work
began and ended (in seconds since 1970), how much processor time that took, and how long the process waited for a core.
"""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from fairlag.flower import introduced

app = introduced(ClientApp())
Numbers = NDArray[np.float32]


@app.train()
def train(message: Message, context: Context) -> Message:
    began = time.monotonic()
    config: dict[str, Any] = dict(message.content.config_records["config"])
    draws = np.random.default_rng()
    with np.load(str(context.node_config["data"])) as held:
        inputs, labels, durations = held["inputs"].reshape(len(held["labels"]), -1), held["labels"], held["durations"]
    arrays = {name: array.numpy().copy() for name, array in message.content.array_records["arrays"].items()}
    weight, bias = sorted(arrays.values(), key=lambda array: -array.ndim)
    loss = 0.0
    for _ in range(config["local-steps"]):
        batch = draws.permutation(len(labels))[: config["batch-size"]]
        loss = step(weight, bias, inputs[batch], labels[batch], config["lr"])
    time.sleep(max(0.0, draws.choice(durations) - (time.monotonic() - began)))
    metrics = MetricRecord({"num-examples": len(labels), "train_loss": loss})
    trained = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    ended = time.time()
    note(
        Path(str(context.node_config["data"])),
        message.metadata.created_at,
        started(),
        ended - (time.monotonic() - began),
        ended,
    )
    return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)


def started() -> float:
    """When this process started."""
    ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def note(data: Path, *moments: float) -> None:
    """Adds a line to the node's file of tasks."""
    waited = sum(int(each.read_text().split()[1]) for each in Path("/proc/self/task").glob("*/schedstat"))
    with data.with_suffix(".csv").open("a") as file:
        file.write(",".join(f"{each:.3f}" for each in (*moments, time.process_time(), waited / 1e9)) + "\n")


def step(weight: Numbers, bias: Numbers, inputs: Numbers, labels: NDArray[np.int64], lr: float) -> float:
    """A step of gradient descent in place; returns the mean cross-entropy before it."""
    scores = inputs @ weight.T + bias
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -float(np.log(np.maximum(shares[rows, labels], 1e-12)).mean())
    shares[rows, labels] -= 1
    shares /= len(labels)
    weight -= lr * (shares.T @ inputs)
    bias -= lr * shares.sum(axis=0)
    return loss
