"""A small source of examples, a small recipe for it, its run, and the files of that."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from io import StringIO
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import numpy as np
from rich.console import Console

from objectives.api.examples import IGNORED, Examples
from objectives.api.special_tokens import SpecialTokens
from trainer.checkpoint.files import newest_first
from trainer.checkpoint.selection import CheckpointConfig
from trainer.checkpoint.state import Tensors, load_tensors
from trainer.data.config import DataConfig
from trainer.data.mixture import Mixture
from trainer.metrics import MetricsConfig
from trainer.model.build import build_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.patterns.block import Block
from trainer.model.positions import Learned
from trainer.optim.optimizer import OptimizerConfig
from trainer.optim.schedule import ScheduleConfig
from trainer.parallel.distributed import World
from trainer.recipe import Recipe
from trainer.run.step import Trainer
from trainer.run.train import Outcome, train
from trainer.run.units.single import Seq2SeqUnit
from trainer.run_config import RunConfig

SPECIAL = SpecialTokens.append(24, {"<pad>": 0, "<bos>": 1, "<eos>": 2}, sentinels=1)


class ToySource:
    """Sequence i is random text of 5 to 20 tokens; the target asks for its first tokens, the labels for its third."""

    def __init__(
        self, size: int = 50, encoder_only: bool = False, fingerprint: str = "toy", special: SpecialTokens = SPECIAL
    ) -> None:
        self.size, self.encoder_only = size, encoder_only
        self.fingerprint, self.special = fingerprint, special
        self.tokenizer_fingerprint, self.tokenizer_size = "toy tokenizer", 24

    def __len__(self) -> int:
        return self.size

    def with_special(self, special: SpecialTokens) -> Self:
        moved = copy(self)
        moved.special = special
        return moved

    def examples(self, indices: np.ndarray, epochs: np.ndarray | None = None) -> Examples:
        rows = [np.random.default_rng([7, index]).integers(3, 24, 5 + index % 16) for index in indices]
        lengths = np.array([len(row) for row in rows], np.int32)
        source = np.full((len(rows), lengths.max()), SPECIAL["<pad>"], np.int32)
        for i, row in enumerate(rows):
            source[i, : len(row)] = row
        kept = lengths // 2
        target = np.where(np.arange(kept.max()) < kept[:, None], source[:, : kept.max()], SPECIAL["<pad>"])
        return Examples(
            sequence_ids=np.array([[*int(index).to_bytes(16, "big")] for index in indices], np.uint8),
            source_ids=source,
            source_lengths=lengths,
            target_ids=target[:, :0] if self.encoder_only else target,
            target_lengths=np.zeros_like(kept) if self.encoder_only else kept,
            labels=np.where(np.arange(lengths.max()) == 2, source, IGNORED) if self.encoder_only else None,
        )


def toy_recipe(
    directory: object,
    *,
    dropout: float = 0.1,
    checkpoint_every: int = 10,
    log_every: int = 10,
    positions: tuple[int, int] = (24, 12),
    **run: Any,
) -> Recipe:
    """A recipe for ``ToySource``; ``positions`` are those of encoder and decoder."""
    return Recipe(
        model=ModelConfig(
            width=16, heads=HeadsConfig(count=2), feed_forward=FeedForwardConfig(width=32), dropout=dropout,
            encoder=EncoderConfig(
                layers=2, positions=Learned(positions[0]), attention=Block(8),
                pooling=Pooling(layers=1, kernel=6, stride=4, padding=3),
            ),
            decoder=DecoderConfig(layers=1, positions=Learned(positions[1])),
        ),
        data=DataConfig(source_length=24, target_length=12, source_multiple=8, target_multiple=4),
        optimizer=OptimizerConfig(learning_rate=1e-2, clip_norm=1.0),
        schedule=ScheduleConfig(warmup_steps=5),
        run=RunConfig(**{"directory": str(directory), "steps": 60, "batch_size": 6, "micro_batch_size": 2,
                         "device": "cpu", **run}),
        checkpoint=CheckpointConfig(every=checkpoint_every),
        metrics=MetricsConfig(log_every=log_every, peak_tflops=None),
    )  # fmt: skip


def make_trainer(recipe: Recipe, world: World | None = None, **parts: Any) -> Trainer:
    """A trainer of the recipe on a toy source; ``parts`` replace its ``unit`` and ``model``."""
    unit = parts.get("unit") or Seq2SeqUnit(recipe, [Mixture.of(ToySource())] * len(recipe.curriculum))
    model = parts.get("model") or build_model(recipe.model, SPECIAL.vocab_size, recipe.run.seed)
    sections = recipe.run, recipe.parallel, recipe.optimizer, recipe.loss
    return Trainer(unit, model, world or World.alone(), *sections)


@contextmanager
def signal_in_update(number: int | None, signal: int) -> Iterator[None]:
    """This process gets ``signal`` as update ``number``, counted from 1, begins."""
    made = Trainer.update

    def update(self, *arguments, **named):
        if self.step + 1 == number:
            os.kill(os.getpid(), signal)
        return made(self, *arguments, **named)

    with patch.object(Trainer, "update", update):
        yield


def train_quietly(recipe: Recipe, **options: Any) -> Outcome:
    """``train`` without output."""
    return train(recipe, console=Console(file=StringIO()), **options)


def metrics_of(recipe: Recipe) -> list[dict[str, Any]]:
    """The lines of its metrics."""
    return [json.loads(line) for line in Path(recipe.run.directory, "metrics.jsonl").read_text().splitlines()]


def weights_of(recipe: Recipe) -> Tensors:
    """The model of its newest checkpoint."""
    return load_tensors(newest_first(Path(recipe.run.directory, "checkpoints"))[0] / "model")
