"""Words that several settings and functions accept, listed once."""

from __future__ import annotations

from typing import Literal

Precision = Literal["fp32", "bf16"]
Device = Literal["auto", "cpu", "cuda"]
Checkpointing = Literal["none", "selective", "layer"]
"""Activations that are computed again in the backward pass."""
ParallelMode = Literal["ddp", "fsdp", "hybrid"]
Reduction = Literal["step", "micro_batch"]
"""Modes of reducing gradients over the ranks."""
