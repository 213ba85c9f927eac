"""A symbol carried across 3,000 tokens by attention patterns: a table and a figure.

A row is noise of eight filler tokens. One of eight symbols stands somewhere in it, and 3,000 tokens further on a mask
asks for it. An encoder of two layers with a masked language model's head answers; a decoder would not do, because its
cross-attention sees the whole source whatever the encoder's pattern is.

In rows of 4,096 tokens one token is hard to find, so training begins with rows of 128, a window of 16 and a distance
of 93, and all three double until they are 4,096, 512 and 3,000: the same weights go on, and the distance is always
nearly six windows. Accuracy is that of the full rows and windows from the first step on.

    python examples/long_range.py docs/figures/long_range.svg
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from objectives.api.examples import IGNORED
from pipelines.figures import grid, save, thousands, use_style
from trainer.model.build import build_model
from trainer.model.config import EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import EmbeddingConfig, FeedForwardConfig, NormConfig
from trainer.model.masked_lm import MaskedLM
from trainer.model.patterns.block import Block
from trainer.model.patterns.block_global import BlockGlobal
from trainer.model.patterns.full import Full
from trainer.model.patterns.local import Local
from trainer.model.patterns.overlap import Overlap
from trainer.model.patterns.staggered import Staggered
from trainer.model.patterns.tglobal import TGlobal
from trainer.model.patterns.window import Window
from trainer.model.positions import Buckets, Sinusoidal
from trainer.scorer.inference import pin_threads

SYMBOLS, FILLERS = 8, 8
MASK = SYMBOLS
"""Ids: the symbols, the mask, the fillers."""

LAYERS, RATE = 2, 3e-3
FAR = (
    "full",
    "block + pooling",
    "block + global",
    "staggered + global",
    "tglobal",
    "window + task globals",
)
"""Patterns with a mechanism that reaches across the row."""

NEAR = ("overlap", "local", "block")
"""Patterns that reach as far as their layers together: 2 x 767, 2 x 256 and 511 tokens with windows of 512."""


def encoder(pattern: str, window: int) -> EncoderConfig:
    """The two layers of ``pattern``, seeing ``window`` tokens besides what the mechanism adds."""
    attentions: dict[str, Block | Overlap | BlockGlobal | Staggered | Local | TGlobal | Window | Full] = {
        "full": Full(),
        "block": Block(window),
        "block + pooling": Block(window),
        "block + global": BlockGlobal(window, global_tokens=window // 8),
        "staggered + global": Staggered(window, global_tokens=16),
        "tglobal": TGlobal(radius=window // 2, block=16),
        "window + task globals": Window(window),
        "overlap": Overlap(window),
        "local": Local(radius=window // 2),
    }
    pooling = Pooling(layers=1) if pattern == "block + pooling" else None
    # The slow waves of 16 neighbours add up in their transient global token, and drown the symbol.
    positions = Buckets() if pattern == "tglobal" else Sinusoidal()
    return EncoderConfig(layers=LAYERS, positions=positions, attention=attentions[pattern], pooling=pooling)


def build(pattern: str, window: int, seed: int) -> MaskedLM:
    """The model, 32 wide."""
    config = ModelConfig(
        width=32,
        heads=HeadsConfig(count=2),
        feed_forward=FeedForwardConfig(width=64),
        encoder=encoder(pattern, window),
        norm=NormConfig(placement="pre"),
        embedding=EmbeddingConfig(scaled=True, norm=False),
        dropout=0.0,
        init_std=32**-0.5,
    )
    model = build_model(config, SYMBOLS + 1 + FILLERS, seed)
    assert isinstance(model, MaskedLM)
    return model


class Rows(NamedTuple):
    """Rows of the task."""

    ids: Tensor  # `(B, L)` int64
    labels: Tensor  # `(B, L)` int64, the symbol at the mask, `IGNORED` elsewhere

    @property
    def asked(self) -> Tensor:
        """``(B, L)`` bool, True at the mask."""
        return self.labels != IGNORED


def make_rows(count: int, length: int, distance: int, generator: torch.Generator) -> Rows:
    """Draw ``count`` rows of ``length`` whose masks stand ``distance`` tokens after the symbol."""
    ids = torch.randint(MASK + 1, MASK + 1 + FILLERS, (count, length), generator=generator)
    symbols = torch.randint(0, SYMBOLS, (count, 1), generator=generator)
    places = torch.randint(0, length - distance, (count, 1), generator=generator)
    ids = ids.scatter(1, places, symbols).scatter(1, places + distance, MASK)
    labels = torch.full_like(ids, IGNORED).scatter(1, places + distance, symbols)
    return Rows(ids, labels)


def accuracy(model: MaskedLM, rows: Rows, task_globals: bool) -> float:
    """Share of masks whose likeliest token is the symbol; 1 / 8 by chance."""
    right = 0
    with torch.inference_mode():
        for part in zip(rows.ids.split(8), rows.labels.split(8), strict=True):
            ids, labels, asked = *part, Rows(*part).asked
            hidden = model.encode(ids, global_positions=asked if task_globals else None)
            right += int((model.logits(hidden[asked]).argmax(-1) == labels[asked]).sum())
    return right / len(rows.ids)


@dataclass(frozen=True)
class Stage:
    """Some training steps on rows of one size."""

    length: int  # of the rows; the window is an eighth of it
    rows: int  # in a step
    steps: int

    @property
    def window(self) -> int:
        """Tokens that a layer sees without its mechanism."""
        return self.length // 8

    @property
    def distance(self) -> int:
        """From the symbol to the mask."""
        return self.length * 3000 // 4096


STAGES = (
    Stage(128, rows=64, steps=240),
    Stage(256, rows=32, steps=40),
    Stage(512, rows=16, steps=40),
    Stage(1024, rows=8, steps=40),
    Stage(2048, rows=4, steps=40),
    Stage(4096, rows=4, steps=40),
)


class Point(NamedTuple):
    """Accuracy on held-out rows of the last stage's size, after some steps."""

    step: int
    accuracy: float


def learn(
    pattern: str, stages: Sequence[Stage] = STAGES, *, every: int = 40, held_out: int = 128, seed: int = 0
) -> Iterator[Point]:
    """Train a model of ``pattern`` through the stages; its accuracy before and after every ``every`` steps."""
    task_globals = pattern == "window + task globals"
    generator = torch.Generator().manual_seed(seed)
    last = stages[-1]
    test = make_rows(held_out, last.length, last.distance, torch.Generator().manual_seed(seed + 1))
    tested = build(pattern, last.window, seed)
    yield Point(0, accuracy(tested, test, task_globals))
    weights, step = tested.state_dict(), 0
    for stage in stages:
        # No weight depends on a window, so all stages train the same ones.
        model = build(pattern, stage.window, seed)
        model.load_state_dict(weights)
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        for turn in range(stage.steps):
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1.0, (turn + 1) / 20, (stage.steps - turn) / 20)
            rows = make_rows(stage.rows, stage.length, stage.distance, generator)
            losses = model(rows.ids, rows.labels, global_positions=rows.asked if task_globals else None)
            loss = losses.minimised / stage.rows
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % every == 0:
                tested.load_state_dict(model.state_dict())
                yield Point(step, accuracy(tested, test, task_globals))
        weights = model.state_dict()


def draw(curves: Mapping[str, Sequence[Point]], path: str) -> None:
    """A panel a pattern: accuracy over steps, chance, and where rows grow."""
    with use_style() as plt:
        figure, axes = grid(plt, len(curves), panel=(3.0, 2.0), shared=True)
        for (pattern, points), axis in zip(curves.items(), axes, strict=True):
            grown = 0
            for stage in STAGES:
                axis.axvline(grown, color="0.85", linewidth=0.8)
                axis.text(grown + stage.steps / 2, 1.1, thousands(stage.length), fontsize=6, color="0.4", ha="center")
                grown += stage.steps
            axis.axhline(1 / SYMBOLS, color="0.4", linewidth=0.8, linestyle=":")
            colour = "C0" if pattern in FAR else "C1"
            axis.plot([point.step for point in points], [point.accuracy for point in points], color=colour)
            axis.set_title(pattern)
            axis.set(xlim=(0, grown), ylim=(0, 1.2), yticks=[0, 0.25, 0.5, 0.75, 1])
            axis.grid(visible=False, axis="x")
        figure.supxlabel("training steps; above the curves: length of the rows in training; dotted: chance")
        figure.supylabel("held-out accuracy, symbol 3,000 tokens away")
        save(plt, figure, path)


def main(path: str) -> None:
    curves: dict[str, list[Point]] = {}
    print(f"{'pattern':24}" + "".join(f"{f'{stage.length:,}':>8}" for stage in STAGES))
    ends = [sum(stage.steps for stage in STAGES[: number + 1]) for number in range(len(STAGES))]
    with pin_threads(1):
        for pattern in (*FAR, *NEAR):
            curves[pattern] = list(learn(pattern))
            after = dict(curves[pattern])
            print(f"{pattern:24}" + "".join(f"{after[end]:8.2f}" for end in ends), flush=True)
    draw(curves, path)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
