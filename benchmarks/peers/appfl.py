"""APPFL: its FedBuff aggregator driven by `appfl.vsim`, its simulator in virtual time, with the paper's delays.

The variant `memory` switches off `optimize_memory`, which by default collects garbage several times per task.
"""

# mypy: ignore-errors
# appfl is not installed in the environment that checks types.

import random
from pathlib import Path

import numpy as np

from benchmarks.peers import vision, work  # noqa: F401 (vision comes before appfl)

# isort: split
from appfl.agent import ClientAgent, ServerAgent
from appfl.config import ClientAgentConfig, ServerAgentConfig
from appfl.vsim import AsyncSimDriver, ClientProfile, VsimLogger
from omegaconf import OmegaConf
from torch.utils.data import TensorDataset

WORK, HERE = str(Path(work.__file__)), str(Path(__file__))


def accuracy(right, scores):
    """The metric that APPFL requires."""
    return float(np.mean(np.argmax(scores, axis=1) == right))


def client_data(name, client):
    """Training and validation data of a client. APPFL finds it by the path of this file."""
    return TensorDataset(*work.held(name, client)), None


def server_data(name):
    return TensorDataset(*work.tests(name))


class Delayed(ClientProfile):
    """Durations from the paper's fleet, drawn anew for every task, without transfers."""

    client, draws = 0, random.Random(0)

    def compute_time(self, compute_second_per_step, num_steps, **kwargs):
        return work.delay(self.client, self.draws.uniform)


def train_configs(kept):
    return {
        "trainer": "VanillaTrainer",
        "mode": "step",
        "num_local_steps": 1,
        "optim": "SGD",
        "optim_args": {"lr": work.LR},
        "loss_fn": "CrossEntropyLoss",
        "metric_path": HERE,
        "metric_name": "accuracy",
        "train_batch_size": work.BATCH,
        "do_validation": False,
        "optimize_memory": not kept,
    }


def server_config(name, updates, kept):
    memory = {"optimize_memory": not kept}
    model = {"model_path": WORK, "model_name": "build", "model_kwargs": {"name": name}}
    server = {
        "num_clients": work.CLIENTS,
        "scheduler": "AsyncScheduler",
        "scheduler_kwargs": dict(memory),
        "aggregator": "FedBuffAggregator",
        "aggregator_kwargs": {
            "K": work.BUFFER,
            "staleness_fn": "polynomial",
            "staleness_fn_kwargs": {"a": 0.5},
            **memory,
        },
        "num_global_epochs": work.WARM + updates,
        "val_data_configs": {
            **{"dataset_path": HERE, "dataset_name": "server_data", "dataset_kwargs": {"name": name}, "batch_size": 500}
        },
        **memory,
    }
    client = {"train_configs": train_configs(kept), "model_configs": model, **memory}
    return ServerAgentConfig(OmegaConf.create(client), OmegaConf.create(server))


def client_agent(name, client, from_server, kept):
    data = {"dataset_path": HERE, "dataset_name": "client_data", "dataset_kwargs": {"name": name, "client": client}}
    config = OmegaConf.structured(ClientAgentConfig(data_configs=OmegaConf.create(data)))
    OmegaConf.set_struct(config, False)
    config.client_id, config.optimize_memory = str(client), not kept
    agent = ClientAgent(config)
    agent.load_config(from_server)
    return agent


def main():
    options = work.options()
    meter = work.Meter(options.updates)

    class Metered(ServerAgent):
        updates = 0

        def global_update(self, *args, **kwargs):
            answer = super().global_update(*args, **kwargs)
            self.updates += 1
            meter.seen(self.updates)
            return answer

        def training_finished(self, **kwargs):
            return meter.enough

    kept = options.variant == "memory"
    server = Metered(server_config(options.model, options.updates, kept))
    from_server = server.get_client_configs()
    clients = [client_agent(options.model, client, from_server, kept) for client in range(work.CLIENTS)]
    profiles = {}
    for client in range(work.CLIENTS):
        profiles[str(client)] = Delayed(bandwidth=0)
        profiles[str(client)].client = client
    AsyncSimDriver(server, clients, profiles, work.CLIENTS, VsimLogger(), base_step_time=1.0).run()
    work.report(meter, options.model, "appfl", evaluation=work.timed(server.server_validate))


if __name__ == "__main__":
    main()
