"""The devices on which models are trained: how they are named, which are there, and which worker uses which."""

import re
from typing import NamedTuple

from fairlag.errors import InputError
from fairlag.limits import shown

CPU = "cpu"
_NAMES = re.compile(r"auto|cpu|mps|cuda(:(0|[1-9]\d{0,2}))?")


class Device(NamedTuple):
    """A device of this machine."""

    name: str
    model: str
    """What it is; of a CPU, the instructions that PyTorch uses: results depend on them."""
    memory: int | None = None
    """Its own memory in bytes; None if it uses that of the machine."""


def parse(text: object) -> str:
    """The name of a device, whether or not this machine has it.

    >>> parse("cuda:1")
    'cuda:1'
    >>> parse("tpu")
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: there is no device 'tpu': it must be auto, cpu, cuda, cuda:1 (or another number) or mps
    """
    if not (isinstance(text, str) and _NAMES.fullmatch(text)):
        raise InputError(
            f"there is no device {shown(text)}: it must be auto, cpu, cuda, cuda:1 (or another number) or mps"
        )
    return text


def kind(name: str) -> str:
    """The kind of a device: results are reproducible on devices of one kind and model.

    >>> kind("cuda:1"), kind("cpu")
    ('cuda', 'cpu')
    """
    return name.partition(":")[0]


def available() -> list[Device]:
    """The devices of this machine, the CPU first.

    >>> available()[0].name
    'cpu'
    """
    return [_cpu(), *_accelerators()]


def _cpu() -> Device:
    import torch  # most commands need no device, and importing torch takes a second

    return Device(CPU, torch.backends.cpu.get_cpu_capability())


def _accelerators() -> list[Device]:
    """Kept apart, because looking at a CUDA device takes memory on it."""
    import torch

    abouts = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    found = [Device(f"cuda:{number}", about.name, about.total_memory) for number, about in enumerate(abouts)]
    return [*found, Device("mps", "Apple GPU")] if torch.backends.mps.is_available() else found


def resolved(asked: str | None) -> str:
    """The device to use: the CPU for None, the first accelerator for "auto"; refuses one that is not there.

    >>> resolved(None), resolved("cpu")
    ('cpu', 'cpu')
    """
    if asked in (None, CPU):
        return CPU
    names = [device.name for device in available()]
    if asked == "auto":
        return names[min(1, len(names) - 1)]
    if asked not in (*names, *map(kind, names)):
        raise InputError(f"there is no device {asked!r} on this machine: it has {', '.join(names)}")
    return str(asked)


def meant(name: str) -> list[Device]:
    """The devices that a resolved name stands for: "cuda" means all of that kind.

    >>> [device.name for device in meant("cpu")]
    ['cpu']
    """
    return [_cpu()] if name == CPU else [each for each in _accelerators() if name in (each.name, kind(each.name))]


def of_worker(name: str, worker: int) -> str:
    """The device of the worker with this number: workers take turns on the devices that a name stands for.

    >>> of_worker("cpu", 3)
    'cpu'
    """
    if name == CPU or ":" in name:
        return name
    choice = meant(name)
    return choice[worker % len(choice)].name
