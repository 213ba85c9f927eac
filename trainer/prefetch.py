"""Batches made ahead of the step that needs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from corpora.errors import FarspanError


@dataclass(frozen=True, kw_only=True)
class LoadingConfig:
    """How batches are made; none of it changes what is in them.

    Attributes:
        ahead: steps whose batches are made before they are asked for, in threads; 0 makes them when asked.
        processes: that make batches instead of threads, where an objective drawn on the fly is slower than the model.
        verify: compare shards with their checksums all at the ``start``, ``lazily`` when one is first read, or
            ``never``.

    Raises:
        FarspanError: counts below 0.
    """

    ahead: int = 2
    processes: int = 0
    verify: Literal["start", "lazily", "never"] = "lazily"

    def __post_init__(self) -> None:
        for name in ("ahead", "processes"):
            if getattr(self, name) < 0:
                raise FarspanError(f"loading.{name} is {getattr(self, name)}; it must be at least 0")
