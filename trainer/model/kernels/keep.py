"""Results that a checkpointed layer saves, instead of computing them again in the backward pass.

PyTorch's selective checkpointing chooses by operator, and sees none inside a kernel that is compiled by itself, as
FlexAttention's is: it would be run twice.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class _Active(threading.local):  # the backward pass runs in a thread of its own
    results: Results | None = None


_active = _Active()


class Results:
    """Results of the ``saved_result`` calls of one run of a layer, in their order."""

    def __init__(self) -> None:
        self._made: deque[Tensor] = deque()
        self._again = False

    @contextmanager
    def first(self) -> Iterator[None]:
        """Around the layer's run in the forward pass."""
        with self._set(again=False):
            yield

    @contextmanager
    def again(self) -> Iterator[None]:
        """Around its run in the backward pass."""
        with self._set(again=True):
            yield

    @contextmanager
    def _set(self, again: bool) -> Iterator[None]:
        before, _active.results, self._again = _active.results, self, again
        try:
            yield
        finally:
            _active.results = before

    def of(self, compute: Callable[[], Tensor]) -> Tensor:
        """``compute()`` when it is first called for, and that result again."""
        if self._again:
            return self._made.popleft()
        # The innermost hooks hold: what this saves for its gradient stays saved.
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
            made = compute()
        # What follows saves the same tensors in both runs only if it needs gradients in both.
        self._made.append(made.detach().requires_grad_(made.requires_grad))
        return made


def saved_result(compute: Callable[[], Tensor]) -> Tensor:
    """``compute()``, only once where a layer is checkpointed selectively."""
    return compute() if _active.results is None else _active.results.of(compute)
