"""pfl: synchronous federated averaging with a cohort of 5, by its SimulatedBackend; the variant 2 is two processes.

pfl is not asynchronous, so there are no delays, and every update is fresh.
"""

# mypy: ignore-errors
# pfl is not installed in the environment that checks types.

import os
import sys

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

from benchmarks.peers import work


class Trained(torch.nn.Module):
    """The model with the two methods that pfl requires."""

    def __init__(self, name):
        super().__init__()
        self.inner = work.build(name)

    def loss(self, inputs, labels):
        self.train()
        return torch.nn.functional.cross_entropy(self.inner(inputs), labels)

    @torch.no_grad()
    def metrics(self, inputs, labels):
        self.eval()
        right = int((self.inner(inputs).argmax(1) == labels).sum())
        return {"accuracy": Weighted(right, len(labels))}


class Metered(TrainingProcessCallback):
    def __init__(self, meter):
        self.meter = meter

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.meter.seen(work.BUFFER * (central_iteration + 1))
        return self.meter.enough, Metrics()


def clients(name):
    """A user's data set is the batch to train on, because pfl itself does not shuffle."""
    users = list(range(work.CLIENTS))
    return FederatedDataset(lambda user: Dataset(work.batch(name, user)), get_user_sampler("random", users))


def start_again(processes):
    """Runs this script again in several processes, with the launcher that pfl's guide names."""
    arguments = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    os.execv(sys.executable, [sys.executable, *arguments, "-m", "benchmarks.peers.pfl", *sys.argv[1:]])


def main():
    options = work.options()
    processes = int(options.variant or 1)
    if processes > 1 and "LOCAL_RANK" not in os.environ:
        start_again(processes)
    np.random.seed(0)
    meter, model = work.Meter(options.updates), Trained(options.model)
    model = PyTorchModel(model, torch.optim.SGD, torch.optim.SGD(model.parameters(), lr=1.0))
    data = clients(options.model)
    rounds = (work.WARM + options.updates) // work.BUFFER
    FederatedAveraging().run(
        NNAlgorithmParams(rounds, rounds + 1, work.BUFFER, None),
        SimulatedBackend(data, data),
        model,
        NNTrainHyperParams(work.BATCH, None, work.LR, local_num_steps=1),
        NNEvalHyperParams(500),
        callbacks=[Metered(meter)],
        send_metrics_to_platform=False,
    )
    if int(os.environ.get("LOCAL_RANK", 0)):
        return
    tests = Dataset(work.tests(options.model))
    apart = work.timed(lambda: model.evaluate(tests, eval_params=NNEvalHyperParams(500))) if processes == 1 else None
    work.report(meter, options.model, "pfl", evaluation=apart, processes=processes)


if __name__ == "__main__":
    main()
