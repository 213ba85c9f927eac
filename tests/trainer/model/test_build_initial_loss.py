"""Every packaged recipe's model begins at chance: its first loss on random targets is that of a uniform guess."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from trainer.model.build import build_model
from trainer.model.config import ModelConfig
from trainer.recipe import load_recipe
from trainer.recipe_files import list_recipes

VOCAB, ROWS, LENGTH = 8192, 2, 256
HALF_A_NAT = 0.5
"""The cost of logits of unit variance, as T5's initial output layer gives them, above a uniform guess."""
NOISE = 5 / math.sqrt(ROWS * LENGTH)
"""Five standard deviations of the mean logit of the targets."""


def reduced(config: ModelConfig) -> ModelConfig:
    """The same model, with its initialisation, two layers deep and at most 256 wide."""
    pooling = config.encoder.pooling and replace(config.encoder.pooling, layers=1)
    return replace(
        config,
        width=min(config.width, 256),
        heads=replace(config.heads, count=min(config.heads.count, 4)),
        feed_forward=replace(config.feed_forward, width=min(config.feed_forward.width, 1024)),
        encoder=replace(config.encoder, layers=2, pooling=pooling),
        decoder=config.decoder and replace(config.decoder, layers=2),
    )


def configurations() -> dict[str, ModelConfig]:
    """The models of all pretraining recipes and of their generators by the recipe's name, one of each kind."""
    kinds: dict[ModelConfig, str] = {}
    for name in sorted(list_recipes(), key=lambda name: (len(name), name)):
        recipe = load_recipe(name)
        if recipe.data.task is not None:  # its model is that of pretraining
            continue
        for model in filter(None, (recipe.model, recipe.generator and recipe.generator.model)):
            kinds.setdefault(reduced(model), name)
    return {f"{name}-{number}": config for number, (config, name) in enumerate(kinds.items())}


CONFIGURATIONS = configurations()


@pytest.mark.parametrize("config", CONFIGURATIONS.values(), ids=CONFIGURATIONS.keys())
def test_the_first_loss_is_that_of_a_uniform_guess(config):
    model = build_model(config, VOCAB, seed=0).eval()
    generator = torch.Generator().manual_seed(0)
    source, target, labels = torch.randint(0, VOCAB, (3, ROWS, LENGTH), generator=generator)
    inputs = {"decoder_ids": target} if config.decoder else {}
    with torch.no_grad():
        loss = model(source_ids=source, labels=labels, **inputs).plain.item() / labels.numel()
    assert math.log(VOCAB) - NOISE < loss < math.log(VOCAB) + HALF_A_NAT + NOISE
