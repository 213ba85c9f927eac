"""Draw who sees whom in each attention pattern, from the patterns' own plain statements.

Run it as ``python examples/attention_patterns.py docs/figures/attention_patterns.svg``.
"""

from __future__ import annotations

import sys

import matplotlib
import torch

from trainer.model.pattern import Pattern
from trainer.model.patterns.block import Block
from trainer.model.patterns.block_global import BlockGlobal
from trainer.model.patterns.full import Full
from trainer.model.patterns.local import Local
from trainer.model.patterns.overlap import Overlap
from trainer.model.patterns.staggered import Staggered
from trainer.model.patterns.window import Window

LENGTH = 96
PATTERNS: dict[str, Pattern] = {
    "block": Block(16),
    "overlap": Overlap(16),
    "block_global": BlockGlobal(16, 3),
    "staggered, even layer": Staggered(16, 6).at(0),
    "staggered, odd layer": Staggered(16, 6).at(1),
    "local": Local(15),
    "window": Window(24),
    "full": Full(),
}


def dense(pattern: Pattern) -> torch.Tensor:
    """``(G + L, G + L)`` bool, True where the row's query sees the column's key."""
    places = torch.arange(pattern.extra_tokens + LENGTH)
    return pattern.mask_mod(places[:, None], places, LENGTH).expand(len(places), len(places))


def main(path: str) -> None:
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "farspan"  # the same bytes every time
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 4, figsize=(10, 5.4), layout="constrained")
    for (name, pattern), ax in zip(PATTERNS.items(), axes.flat, strict=True):
        ax.imshow(dense(pattern), cmap="Blues", interpolation="nearest", vmin=0, vmax=1.2)
        ax.set(title=name, xticks=[], yticks=[])
        ax.set_xlabel("key")
        ax.set_ylabel("query")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
