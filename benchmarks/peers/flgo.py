"""FLGo: its own FedBuff on its virtual clock, with a simulator that draws the paper's delays for every task."""

# mypy: ignore-errors
# flgo is not installed in the environment that checks types.

import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from benchmarks.peers import vision, work  # noqa: F401 (vision comes before flgo)

# isort: split
import flgo
import flgo.algorithm.fedbuff as fedbuff
from flgo.benchmark.partition import BasicPartitioner
from flgo.benchmark.toolkits.cv.classification import FromDatasetPipe
from flgo.simulator.default_simulator import Simulator

# PyTorch 2.13 refuses FLGo's subsets of a data set: a class that overrides __getitem__ must override this, too.
FromDatasetPipe.TaskDataset.__getitems__ = lambda self, places: [self[place] for place in places]

UNITS = 10
"""Units of FLGo's clock, which counts whole units, per second."""
CONFIG = """
from torch.utils.data import TensorDataset
import torch
from benchmarks.peers import work
images, labels, train = work.examples({name!r})
train_data = TensorDataset(torch.from_numpy(images[:train]), torch.from_numpy(labels[:train]))
test_data = TensorDataset(*work.tests({name!r}))
def get_model():
    return work.build({name!r})
"""


def make_task(name):
    """The files of a task: a benchmark from a configuration, and which client holds what, as in FLGo's guide."""

    class Shares(BasicPartitioner):
        num_clients = work.CLIENTS

        def __call__(self, data):
            return [share.tolist() for share in work.shares(name)]

    Path("config.py").write_text(CONFIG.format(name=name), encoding="utf-8")
    benchmark = flgo.gen_benchmark_from_file("images", "config.py", target_path=".", overwrite=True)
    module = importlib.import_module(benchmark)
    module.visualize = lambda *_: None  # a picture of every single example
    flgo.gen_task_by_(module, Shares(), "task", overwrite=True)


def parts(meter):
    """FedBuff with the meter, and the simulator with the fleet."""

    class Server(fedbuff.Server):
        updates = 0

        def package_handler(self, received):
            is_merged = super().package_handler(received)
            self.updates += len(received["__cid"])
            meter.seen(self.updates)
            return is_merged

        def _if_exit(self):
            return meter.enough

    class Fleet(Simulator):
        def update_client_responsiveness(self, client_ids, *args, **kwargs):
            delays = [round(UNITS * work.delay(client, np.random.uniform)) for client in client_ids]
            self.set_variable(client_ids, "latency", delays)

    return SimpleNamespace(Server=Server, Client=fedbuff.Client, __name__="fedbuff"), Fleet


def main():
    options = work.options()
    sys.argv, sys.path = sys.argv[:1], [os.getcwd(), *sys.path]
    make_task(options.model)
    meter = work.Meter(options.updates)
    algorithm, fleet = parts(meter)
    settings = {
        **{
            "num_rounds": options.updates,
            "eval_interval": -1,
            "proportion": 1.0,
            "sample": "full",
            "algo_para": [0.34, 1.0],
        },
        **{"num_steps": 1, "batch_size": work.BATCH, "learning_rate": work.LR, "train_holdout": 0.0},
        **{"no_log_console": True, "no_tqdm": True},
    }
    runner = flgo.init("task", algorithm, settings, Simulator=fleet)
    runner.run()
    work.report(meter, options.model, "flgo", evaluation=work.timed(runner.gv.logger.log_once))


if __name__ == "__main__":
    main()
