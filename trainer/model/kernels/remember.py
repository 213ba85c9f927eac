"""Results computed once per batch and reused by its other layers."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

Made = TypeVar("Made")

_made: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
_NO_TENSOR = torch.empty(0)
_MOST = 256  # of one batch, or of all batches that nothing is known of


@torch.compiler.disable
def remembered(tensors: tuple[Tensor | None, ...], key: Hashable, make: Callable[[], Made]) -> Made:
    """``make()``, once for these very tensors and this key.

    Args:
        tensors: all that it is made from, never written to. What was made, and the others, live as long as the first
            of them; callers that share tensors give those of the batch first, in one order, lest two hold each other.
        key: all else that it is made from.
    """
    given = tuple(x for x in tensors if x is not None)
    first, *others = given or (_NO_TENSOR,)
    made = _made.setdefault(first, {})
    key = (key, tuple(x is None for x in tensors))
    known, result = made.get(key, (None, None))
    if known is None or any(a is not b for a, b in zip(known, others, strict=True)):
        if len(made) >= _MOST:
            made.clear()
        result = make()
        made[key] = (others, result)
    return result
