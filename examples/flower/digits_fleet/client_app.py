"""An ordinary Flower client; one line lets the server recognise it after a restart, and masks its updates if wanted."""

import time
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn.utils import parameters_to_vector

from digits_fleet.task import Net, examples, fleet, misbehave
from fairlag.flower import introduced, masked
from fairlag.lab.resources import Resources

# A node whose configuration names a keeper sends only masked updates; the others send theirs in the clear.
app = masked(introduced(ClientApp()), required=False)


@app.train()
def train(message: Message, context: Context) -> Message:
    began, node = time.monotonic(), context.node_config
    config: dict[str, Any] = dict(message.content.config_records["config"])
    experiment, client = fleet(context.run_config["fleet"]), int(node["partition-id"])
    inputs, labels = examples(experiment, client, str(node.get("data", "")))
    task = Resources(experiment).task  # here classification, so the loss is cross-entropy
    torch.set_num_threads(1)
    model = Net()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    told: dict[str, float] = {"num-examples": len(labels)}
    if config.get("start-loss"):  # q-FedAvg weighs by the loss of the model that clients received
        with torch.no_grad():
            told["start-loss"] = task.losses(model(inputs), labels).mean().item()
    received = parameters_to_vector(model.parameters()).detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    draws = torch.Generator().manual_seed(hash((config["seed"], client, config["ordinal"])))  # the same in every run
    for _ in range(config["local-steps"]):
        batch = torch.randperm(len(labels), generator=draws)[: config["batch-size"]]
        optimizer.zero_grad()
        loss = task.losses(model(inputs[batch]), labels[batch]).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    misbehave(experiment, client, model, received, key=config["ordinal"])
    # A device of this kind takes as long as the fleet says: sleep for the time that training did not take.
    long = float(context.run_config["sleep"]) * experiment.fleet().duration(client, config["ordinal"])
    time.sleep(max(0.0, long - (time.monotonic() - began)))
    metrics = MetricRecord({**told, "train_loss": loss.item()})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)
