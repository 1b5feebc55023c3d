"""What a second pass must find as the first one did, and leave as the first one left it: random numbers and buffers."""

# pyright: reportMissingImports=false
from typing import Any

import torch
from torch import Tensor, nn

from igr.torch.tensors import Kinds, copies, copy_, modules


class Randomness:
    """The states of PyTorch's default generators, on the CPU and on the devices of some tensors."""

    def __init__(self, tensors: list[Tensor]):
        home = tensors[0].device
        devices = {home, *[t.device for t in tensors if t.device != home]}  # to hash a device for each tensor is slow
        self._read({device for device in devices if device.type not in ("cpu", "meta")})

    def _read(self, devices: set[torch.device]) -> None:
        self.cpu = torch.get_rng_state()
        self.others = {device: _module(device).get_rng_state(*_where(device)) for device in devices}

    def now(self) -> "Randomness":
        """The states that the same generators have now."""
        new = object.__new__(Randomness)
        new._read(set(self.others))
        return new

    def restore(self) -> None:
        """Set the generators back to these states."""
        torch.set_rng_state(self.cpu)
        for device, state in self.others.items():
            _module(device).set_rng_state(state, *_where(device))


def _module(device: torch.device) -> Any:
    return torch.get_device_module(device)


def _where(device: torch.device) -> tuple[Any, ...]:
    return () if device.type == "mps" else (device,)  # Apple's has one device and takes no argument


class Buffers:
    """The values of a model's buffers, such as the running statistics of batch norm."""

    def __init__(self, model: nn.Module):
        self.homes = [
            (module._buffers, name, buffer)
            for module in modules(model)
            if module._buffers
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]
        self.tensors = list({id(buffer): buffer for *_, buffer in self.homes}.values())
        self.kinds = Kinds(self.tensors)
        with torch.no_grad():
            self.values = copies(self.tensors, self.kinds)

    def restore(self) -> None:
        """Put the values back, into the same tensors."""
        with torch.no_grad():
            copy_(self.tensors, self.values, self.kinds)
        for buffers, name, tensor in self.homes:
            buffers[name] = tensor
