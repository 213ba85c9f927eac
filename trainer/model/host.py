"""Host copies of device tensors, so that the host can read values without synchronising with the device."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from trainer.model.kernels.remember import remembered

_originals: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def sent(x: Tensor, device: torch.device) -> Tensor:
    """Copy ``x`` to ``device`` and keep ``x`` as long as the copy exists.

    Neither tensor may be written to. From pinned memory the copy is asynchronous.
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
    """Return the CPU tensor that ``sent`` copied to ``x``, or ``x`` itself if there is none."""
    return _originals.get(x, x)


def derived(make: Callable[..., Tensor], tensors: tuple[Tensor | None, ...], *sizes: object) -> Tensor:
    """Compute ``make(*tensors, *sizes)`` once per batch, also on the host if it has copies of all tensors."""
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
