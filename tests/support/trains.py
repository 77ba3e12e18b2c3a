"""Train functions of users' own, as tests name them: "tests.support.trains:…"."""

from typing import Any

import torch

from fairlag.learn.own import Batches, Context


def plainly(model: torch.nn.Module, batches: Batches, context: Context) -> None:
    """Gradient descent, as fairlag makes it itself."""
    descent = torch.optim.SGD(model.parameters(), lr=context.lr)
    for inputs, targets in batches:
        descent.zero_grad()
        torch.autograd.backward(context.loss(model(inputs), targets))
        descent.step()


def by_average(model: torch.nn.Module, batches: Batches, context: Context) -> dict[str, float]:
    """Steps along an average of gradients that the client remembers; reports what it did."""
    assert context.memory is not None
    (average,) = context.memory
    weights, losses = list(model.parameters()), []
    for inputs, targets in batches:
        loss = context.loss(model(inputs), targets)
        gradient = torch.cat([each.flatten() for each in torch.autograd.grad(loss, weights)])
        average.mul_(0.9).add_(gradient)
        flat = torch.nn.utils.parameters_to_vector(weights).detach() - context.lr * average
        with torch.no_grad():
            for each, part in zip(weights, flat.split([each.numel() for each in weights]), strict=True):
                each.copy_(part.view_as(each))
        losses.append(loss.item())
    return {"steps": len(losses), "loss": max(losses, default=0.0)}


def frozen(model: torch.nn.Module, batches: Batches, context: Context) -> None:
    """Leaves the model in another state than it was."""
    plainly(model, batches, context)
    model.eval()
    for each in model.parameters():
        each.requires_grad_(False)


def raising(model: torch.nn.Module, batches: Batches, context: Context) -> None:
    raise KeyError("no\nweights")


def replacing(model: torch.nn.Module, batches: Batches, context: Context) -> None:
    model.double()


def number(model: torch.nn.Module, batches: Batches, context: Context) -> Any:
    return 3


def wordy(model: torch.nn.Module, batches: Batches, context: Context) -> Any:
    return {"accuracy": 0.5}
