"""A small encoder-decoder that is fine-tuned on made pairs for a few updates."""

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from tests.artefacts import make_documents, make_pairs
from tests.trainer.toy import toy_recipe
from trainer.data.config import DataConfig, TaskConfig
from trainer.model.positions import Learned
from trainer.recipe import Recipe
from trainer.run.train import train

OPTIONS = {"source_length": 48, "target_length": 12, "global_attention": "bos"}
"""Of task ``text_to_text``."""


def paired_recipe(directory: object, pairs: str, options: dict[str, Any] | None = None, **run: Any) -> Recipe:
    """A recipe that fine-tunes the toy model on the training pairs, without checks of the largest batch."""
    recipe = toy_recipe(directory, **{"steps": 6, "dropout": 0.0, "dry_run": False, "log_every": 1000, **run})
    model = replace(
        recipe.model,
        encoder=replace(recipe.model.encoder, positions=Learned(64)),
        decoder=replace(recipe.model.decoder, positions=Learned(32)),
        init_std=0.5,  # texts that differ
    )
    data = DataConfig(
        pairs=pairs,
        task=TaskConfig(options={**OPTIONS, **(options or {})}),
        source_length=48,
        target_length=16,
        source_multiple=8,
        global_positions="none",
    )
    return replace(recipe, model=model, data=data)


def make_artefacts(folder: Path, pairs: int = 24, **options: Any) -> str:
    """Pairs about documents, several of them about the same ones; the folder of the pairs."""
    documents = make_documents(str(folder / "documents"), shards=1, documents=8, max_tokens=60)
    return make_pairs(str(folder / "pairs"), documents, pairs, **options)


def train_quietly(recipe: Recipe, **options: Any) -> str:
    """Train, and return what was printed."""
    said = StringIO()
    torch.manual_seed(0)
    train(recipe, console=Console(file=said, width=1000), **options)
    return said.getvalue()
