"""Flower: an asynchronous loop like FedBuff on push_messages and pull_messages of its simulation, without delays.

Clients are Ray actors. By default Flower gives each two cores, so there is one actor; the variant 2 has two.
"""

# mypy: ignore-errors
# flwr is not installed in the environment that checks types.

import time

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

from benchmarks.peers import work

client_app, server_app = ClientApp(), ServerApp()
OPTIONS, EVALUATION = work.options(), []
METER = work.Meter(OPTIONS.updates)


@client_app.train()
def train(message, context):
    torch.set_num_threads(1)
    name = message.content["task"]["model"]
    model = work.build(name)
    model.load_state_dict(message.content["parameters"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=work.LR)
    work.train_step(model, optimizer, *work.batch(name, context.node_config["partition-id"]))
    told = {
        "parameters": ArrayRecord(model.state_dict()),
        "told": MetricRecord({"version": message.content["task"]["version"]}),
    }
    return Message(RecordDict(told), reply_to=message)


def task(node, parameters, version):
    content = {
        "parameters": ArrayRecord(parameters),
        "task": ConfigRecord({"model": OPTIONS.model, "version": version}),
    }
    return Message(RecordDict(content), dst_node_id=node, message_type="train")


def merged(parameters, buffer, history, version):
    """The parameters moved by the mean of the updates, each discounted by its staleness."""
    total = {name: torch.zeros_like(value) for name, value in parameters.items()}
    for content in buffer:
        start = content["told"]["version"]
        discount = (1 + version - start) ** -0.5 / len(buffer)
        for name, value in content["parameters"].to_torch_state_dict().items():
            total[name] += discount * (value - history[start][name])
    return {name: value + total[name] for name, value in parameters.items()}


@server_app.main()
def main(grid, context):
    model = work.build(OPTIONS.model)
    history, version, updates, buffer = {0: model.state_dict()}, 0, 0, []
    while len(nodes := list(grid.get_node_ids())) < work.CLIENTS:
        time.sleep(0.1)
    waiting = set(grid.push_messages(task(node, history[0], 0) for node in nodes))
    while not METER.enough:
        replies = list(grid.pull_messages(waiting))
        if not replies:
            time.sleep(0.001)
        for reply in replies:
            waiting.discard(reply.metadata.reply_to_message_id)
            buffer.append(reply.content)
            updates += 1
            if len(buffer) == work.BUFFER:
                history[version + 1] = merged(history[version], buffer, history, version)
                version, buffer = version + 1, []
            waiting.update(grid.push_messages([task(reply.metadata.src_node_id, history[version], version)]))
        METER.seen(updates)
    model.load_state_dict(history[version])
    EVALUATION.append(work.timed(lambda: work.accuracy(model, OPTIONS.model)))


def run():
    actors = int(OPTIONS.variant or 1)
    backend = {"init_args": {"_node_ip_address": "127.0.0.1", "include_dashboard": False, "num_cpus": 2}}
    if OPTIONS.variant:
        backend["client_resources"] = {"num_cpus": 2 / actors, "num_gpus": 0.0}
    run_simulation(server_app, client_app, num_supernodes=work.CLIENTS, backend_config=backend)
    work.report(
        METER, OPTIONS.model, "flwr", "ray", evaluation=EVALUATION[0] if actors == 1 else None, processes=1 + actors
    )


if __name__ == "__main__":
    run()
