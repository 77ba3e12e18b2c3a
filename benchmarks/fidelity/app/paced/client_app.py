"""The client: softmax regression in numpy, because each message starts a process and importing torch takes seconds."""

import time
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
    return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)


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
