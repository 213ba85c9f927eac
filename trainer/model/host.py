"""Values of a device's tensors that the host knows without asking the device, which would wait for its queue."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from trainer.model.kernels.remember import remembered

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


def derived(make: Callable[..., Tensor], tensors: tuple[Tensor | None, ...], *sizes: object) -> Tensor:
    """``make(*tensors, *sizes)``, made once a batch, and known to the host where all the tensors are.

    Args:
        make: a pure function; bound to nothing that holds the tensors.
        tensors: at least one that is not None, all on one device, in the order in which ``remembered`` wants them.
        sizes: what else it takes, hashable.
    """
    device = next(x.device for x in tensors if x is not None)
    if device.type == "cpu" or torch.compiler.is_compiling():
        return make(*tensors, *sizes)

    def made() -> Tensor:
        result = make(*tensors, *sizes)
        known = [None if x is None else on_host(x) for x in tensors]
        if all(x is None or x.device.type == "cpu" for x in known):
            _originals[result] = make(*known, *sizes)
        return result

    return remembered(tensors, (make, sizes), made)
