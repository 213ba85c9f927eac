"""What a device's tensors hold, known to the host without asking the device, which would wait for all it has to do."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

_originals: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def sent(x: Tensor, device: torch.device) -> Tensor:
    """``x`` on ``device``; what it was copied from is remembered as long as the copy lives.

    Neither may be written to. From pinned memory the copy runs beside what the device is doing.
    """
    if x.device == device:
        return x
    if device.type == "cuda" and not x.is_pinned():
        x = x.pin_memory()
    copy = x.to(device, non_blocking=True)
    if x.device.type == "cpu":
        _originals[copy] = x
    return copy


@torch.compiler.disable
def on_host(x: Tensor) -> Tensor:
    """The CPU tensor that ``x`` is a copy of by ``sent``, or ``x`` itself where there is none."""
    return _originals.get(x, x)
