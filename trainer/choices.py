"""Literal types of words that several settings and functions accept."""

from __future__ import annotations

from typing import Literal

Precision = Literal["fp32", "bf16"]
Device = Literal["auto", "cpu", "cuda"]
Checkpointing = Literal["none", "selective", "layer"]
"""Activations that the backward pass recomputes."""
ParallelMode = Literal["ddp", "fsdp", "hybrid"]
Reduction = Literal["step", "micro_batch"]
"""Times at which gradients are reduced over the ranks."""
