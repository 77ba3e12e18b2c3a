"""Machines with devices that this one does not have."""

from types import SimpleNamespace

import pytest
import torch

from fairlag.learn import devices, transfer


def cards(monkeypatch: pytest.MonkeyPatch, count: int, *, apple: bool = False) -> None:
    """A machine with this many CUDA devices, on which nothing can be computed."""
    about = SimpleNamespace(name="Card", total_memory=8 << 30)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: about)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: apple)


def all_on_meta(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices of all tensors that came back. Those of the meta device have no values: they are 0 here."""
    found: list[str] = []

    def fetch(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor.device.type)
        return torch.zeros_like(tensor, device="cpu") if tensor.is_meta else tensor

    monkeypatch.setattr(transfer, "fetched", fetch)
    return found


def meta_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose only accelerator is the meta device: "auto" takes it."""
    all_on_meta(monkeypatch)
    monkeypatch.setattr(devices, "_accelerators", lambda: [devices.Device("meta", "Nothing")])
