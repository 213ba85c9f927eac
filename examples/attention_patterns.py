"""Draw who attends to whom in each attention pattern, from the patterns' own ``mask_mod``.

Keys that are no positions of the row stand right of the line: sums of blocks (LongT5), windows of pooled attention
(BART-LS). ``tests/examples/test_long_range.py`` compares each panel with the layer's gradients.

    python examples/attention_patterns.py docs/figures/attention_patterns.svg
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pipelines.figures import grid, save, use_style
from trainer.model.layers.pooled import Pooling
from trainer.model.pattern import Pattern
from trainer.model.patterns.bigbird import BigBird
from trainer.model.patterns.block import Block
from trainer.model.patterns.block_global import BlockGlobal
from trainer.model.patterns.full import Full
from trainer.model.patterns.local import Local
from trainer.model.patterns.overlap import Overlap
from trainer.model.patterns.span import Span
from trainer.model.patterns.staggered import Staggered
from trainer.model.patterns.tglobal import TGlobal
from trainer.model.patterns.window import Window

LENGTH = 96
GLOBALS = (0, 40, 41, 72)  # positions that an objective makes global
POOLING = Pooling(layers=1, kernel=12, stride=8, padding=6)

NOTHING, POSITION, GLOBAL, SUMMARY = range(4)
COLOURS = ("#f4f6f8", "#0072B2", "#D55E00", "#009E73")
KINDS = {
    POSITION: "positions of the row",
    GLOBAL: "global tokens, as query or key",
    SUMMARY: "sums (tglobal), averages (pooling)",
}


class Panel(NamedTuple):
    """A pattern to draw."""

    title: str
    pattern: Pattern
    chosen: tuple[int, ...] = ()  # positions that are made global
    pooling: Pooling | None = None  # pooled attention besides, as in the top layers of BART-LS


PANELS = (
    Panel("full\n(BART, T5)", Full()),
    Panel("block\n(BART-LS)", Block(16)),
    Panel("block + pooling\n(BART-LS)", Block(16), pooling=POOLING),
    Panel("overlap\n(BART-LS)", Overlap(16)),
    Panel("block_global\n(BART-LS)", BlockGlobal(16, 3)),
    Panel("staggered, even layers\n(PEGASUS-X)", Staggered(16, 6).at(0)),
    Panel("staggered, odd layers\n(PEGASUS-X)", Staggered(16, 6).at(1)),
    Panel("local\n(LongT5)", Local(8)),
    Panel("tglobal\n(LongT5)", TGlobal(8, 8)),
    Panel("window\n(Longformer)", Window(16)),
    Panel("span\n(T5Gemma 2)", Span(7, 8)),
    Panel("window + globals\n(LED, PRIMERA)", Window(16), GLOBALS),
    Panel("bigbird\n(BigBird-PEGASUS)", BigBird(4, 3)),
)


def kinds(panel: Panel) -> Tensor:
    """``(G + L, G + L + S)`` int64: the kind of key that a query attends to at each place, ``NOTHING`` at others.

    G is the number of learned tokens, which come first, and S that of sums or averages, which come last.
    """
    pattern = panel.pattern
    extra = pattern.extra_tokens
    places = torch.arange(extra + LENGTH)
    seen = pattern.mask_mod(places[:, None], places, LENGTH).expand(len(places), len(places))
    special = torch.isin(places, torch.tensor(panel.chosen, dtype=torch.int64)) | (places < extra)
    if isinstance(pattern, BlockGlobal):
        special |= places % pattern.size < pattern.global_tokens
    either = special[:, None] | special
    if panel.chosen:  # the pattern's statement leaves out what a task chooses
        seen = seen | either
    found = torch.where(seen, torch.where(either, GLOBAL, POSITION), NOTHING)
    return torch.cat([found, _summaries(panel, places)], 1)


def _summaries(panel: Panel, queries: Tensor) -> Tensor:
    """``(L, S)``: the sums of blocks or averages of windows that each query attends to; S is 0 without any."""
    seen = torch.zeros(len(queries), 0, dtype=torch.bool)
    if isinstance(panel.pattern, TGlobal):
        keys = torch.arange(LENGTH, LENGTH + LENGTH // panel.pattern.block)
        seen = panel.pattern.mask_mod(queries[:, None], keys, LENGTH)
    elif panel.pooling:  # every position attends to every window
        seen = torch.ones(len(queries), panel.pooling.windows(LENGTH), dtype=torch.bool)
    return torch.where(seen, SUMMARY, NOTHING)


def main(path: str) -> None:
    with use_style() as plt:
        figure, axes = grid(plt, len(PANELS) + 1, columns=4, panel=(2.1, 2.2))
        for panel, axis in zip(PANELS, axes[:-1], strict=True):
            _draw(axis, panel)
        axes[0].set_ylabel("query")
        axes[0].set_xlabel("key")
        _legend(axes[-1])
        save(plt, figure, path)


def _draw(axis: Any, panel: Panel) -> None:
    from matplotlib.colors import ListedColormap

    found = kinds(panel)
    axis.imshow(found, cmap=ListedColormap(COLOURS), interpolation="nearest", vmin=0, vmax=len(COLOURS) - 1)
    if found.shape[1] > len(found):
        axis.axvline(len(found) - 0.5, color="black", linewidth=0.8)
    axis.set_title(panel.title)
    axis.set(xticks=[], yticks=[], aspect="auto", box_aspect=1)
    axis.spines[["top", "right"]].set_visible(True)


def _legend(axis: Any) -> None:
    from matplotlib.patches import Patch

    axis.axis("off")
    handles = [Patch(color=COLOURS[kind], label=label) for kind, label in KINDS.items()]
    axis.legend(handles=handles, loc="center left").set_in_layout(False)  # it may reach beyond its panel


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
