"""One local step on a model's flat gradient: gradient descent by itself, or an optimiser of torch.optim."""

from collections.abc import Iterator

import torch
from torch.nn.utils import clip_grad_norm_

from fairlag.core.vector import Matrix, Vector
from fairlag.learn.flat import Flat
from fairlag.learn.local import Recipe
from fairlag.learn.optimiser import Optimiser
from fairlag.learn.transfer import alter, download, upload
from fairlag.rules.local import SharingDirection


def kept_numbers(flat: Flat, recipe: Recipe) -> int:
    """How many numbers a client keeps between tasks because of the recipe itself, not because of a strategy.

    >>> flat = Flat(torch.nn.Linear(2, 1))
    >>> kept_numbers(flat, Recipe(steps=1)), kept_numbers(flat, Recipe(steps=1, train="own:train", memory=2))
    (0, 6)
    >>> kept_numbers(flat, Recipe(steps=1, optimiser=Optimiser("adam"), optimiser_state="kept"))
    9
    """
    if recipe.memory is not None:
        return recipe.memory * flat.trained
    return 0 if recipe.optimiser_state is None else _Optimised(flat, recipe).numbers


class Descent:
    """Makes the steps of one task after the other.

    Gradient descent: weight decay, proximal term, direction, momentum, step. With an optimiser of torch.optim:
    proximal term, clipping, direction, then the optimiser, with its own weight decay.
    """

    def __init__(self, flat: Flat, recipe: Recipe) -> None:
        self._flat, self._recipe = flat, recipe
        by_torch = (recipe.optimiser, recipe.optimiser_state, recipe.clip_norm, recipe.clip_value)
        self._optimised = None if all(each is None for each in by_torch) else _Optimised(flat, recipe)
        momentum = recipe.momentum and self._optimised is None
        self._velocity = torch.empty_like(flat.weights) if momentum else None
        self._start = torch.empty_like(flat.weights) if recipe.prox else None
        self._drift = torch.empty_like(flat.weights) if recipe.prox else None
        direction = recipe.direction
        self._sharing = direction if isinstance(direction, SharingDirection) else None
        self._turning = direction if not isinstance(direction, SharingDirection) else None
        self._turned = 0 if recipe.direction is None else recipe.direction.vectors * flat.trained
        self.remembered = self._turned + kept_numbers(flat, recipe)
        """How many numbers a client remembers between tasks."""

    def begin(self, lr: float, memory: Vector | None, shared: Vector) -> None:
        """A task begins, from the model's current weights; `shared` is what the direction takes from the server."""
        self._memory, self._from_server = memory, shared
        if self._start is not None:
            self._start.copy_(self._flat.weights)
        if self._velocity is not None:
            self._velocity.zero_()
        if self._optimised is not None:
            self._optimised.begin(lr, None if memory is None else memory[self._turned :])

    def step(self, lr: float) -> None:
        """One step along the gradient that the model has now."""
        recipe, weights, gradient = self._recipe, self._flat.weights, self._flat.gradient
        if recipe.weight_decay and self._optimised is None:
            gradient.add_(weights, alpha=recipe.weight_decay)
        if self._start is not None:
            gradient.add_(torch.sub(weights, self._start, out=self._drift), alpha=recipe.prox)
        if self._optimised is not None:
            self._optimised.clip()
        if self._memory is not None and recipe.direction is not None:
            alter(gradient, self._turn)
        if self._optimised is not None:
            self._optimised.step(lr)
            return
        if self._velocity is not None:
            gradient = self._velocity.mul_(recipe.momentum).add_(gradient)
        weights.add_(gradient, alpha=-lr)

    def _turn(self, gradient: Vector) -> None:
        if self._turning is not None:
            self._turning.turn(gradient, self._rows)
        elif self._sharing is not None:
            self._sharing.turn(gradient, self._rows, self._from_server)

    def share(self, change: Vector, reach: float, out: Vector) -> None:
        """The task is over: writes what the client tells the server of its memory into `out`."""
        out[:] = 0
        if self._sharing is not None and self._memory is not None and reach:
            out[: len(change)] = self._sharing.share(change, reach, self._rows, self._from_server)

    @property
    def _rows(self) -> Matrix:
        """What the direction remembers, one row per vector."""
        assert self._memory is not None
        return self._memory[: self._turned].reshape(-1, self._flat.trained)

    def end(self) -> None:
        """The task is over: overwrites what the client remembers of its optimiser."""
        if self._optimised is not None and self._memory is not None:
            self._optimised.end(self._memory[self._turned :])


class _Optimised:
    """An optimiser of torch.optim on the model's own tensors, made anew for every task.

    What a client keeps of it is one vector: 1 if there is a state, then the tensors of each parameter's state.
    """

    def __init__(self, flat: Flat, recipe: Recipe) -> None:
        self._recipe = recipe
        own = ("momentum", recipe.momentum), ("weight_decay", recipe.weight_decay)
        self._kind = recipe.optimiser or Optimiser("sgd", own)
        self._gradient = flat.gradient
        self._parameters = [each for each in flat.model.parameters() if each.requires_grad]
        self._optimiser = self._kind.made(self._parameters, lr=0.0)
        self._keeps = recipe.optimiser_state is not None
        self._shapes = self._probed() if self._keeps else []

    @property
    def numbers(self) -> int:
        """How many numbers a client keeps."""
        return 1 + sum(shape.numel() for *_, shape in self._shapes)

    def begin(self, lr: float, memory: Vector | None) -> None:
        self._optimiser = self._kind.made(self._parameters, lr)
        if self._keeps and memory is not None and memory[0]:
            for place, name, device, part in self._parts(memory):
                self._optimiser.state[self._parameters[place]][name] = upload(part.copy(), device)

    def clip(self) -> None:
        if self._recipe.clip_norm is not None:
            clip_grad_norm_(self._parameters, self._recipe.clip_norm)
        if self._recipe.clip_value is not None:
            self._gradient.clamp_(-self._recipe.clip_value, self._recipe.clip_value)

    def step(self, lr: float) -> None:
        for group in self._optimiser.param_groups:
            group["lr"] = lr
        self._optimiser.step()

    def end(self, memory: Vector) -> None:
        if self._keeps and self._optimiser.state:
            memory[0] = 1
            for place, name, _, part in self._parts(memory):
                part[...] = download(self._optimiser.state[self._parameters[place]][name])

    def _parts(self, memory: Vector) -> Iterator[tuple[int, str, torch.device, Vector]]:
        """The tensors of the state, as views of the memory."""
        begin = 1
        for place, name, device, shape in self._shapes:
            yield place, name, device, memory[begin : begin + shape.numel()].reshape(shape)
            begin += shape.numel()

    def _probed(self) -> list[tuple[int, str, torch.device, torch.Size]]:
        """Per tensor of the state: its parameter, its name, its device and its shape, seen after a step of copies.

        An optimiser may keep numbers such as its count of steps on the CPU.
        """
        copies = [torch.nn.Parameter(each.detach().clone()) for each in self._parameters]
        for each in copies:
            each.grad = torch.zeros_like(each)
        optimiser = self._kind.made(copies, lr=0.0)
        optimiser.step()
        return [
            (place, name, value.device, value.shape)
            for place, each in enumerate(copies)
            for name, value in optimiser.state[each].items()
            if isinstance(value, torch.Tensor)
        ]
