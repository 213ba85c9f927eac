"""Tiny models with weights of their own, and the tokenizer whose ids they know."""

from __future__ import annotations

import json

import tokenizers
import torch

from objectives.api.special_tokens import SpecialTokens
from trainer.conversion.model_folder import Model
from trainer.conversion.vocabulary import Vocabulary
from trainer.model.build import build_model, make_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.patterns.full import Full
from trainer.model.positions import Learned

WORDS = [f"w{number}" for number in range(20)]
OWNED = {"<s>": 0, "<pad>": 1, "</s>": 2}


def tokenizer_files() -> dict[str, bytes]:
    """A tokenizer of 23 ids that owns begin, pad and end."""
    vocabulary = {**OWNED, **{word: number for number, word in enumerate(WORDS, len(OWNED))}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(OWNED))
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    return {"tokenizer.json": tokenizer.to_str().encode(), "special_tokens_map.json": json.dumps(names).encode()}


def vocabulary(*names: str, sentinels: int = 0, fingerprint: str | None = None) -> Vocabulary:
    """The 23 ids of that tokenizer, and special tokens behind them."""
    special = SpecialTokens.append(23, {"<pad>": 1, "<bos>": 0, "<eos>": 2}, names, sentinels)
    return Vocabulary.of(special, fingerprint)


def tiny_config(encoder: EncoderConfig | None = None, decoder: bool = True, positions: int = 16) -> ModelConfig:
    return ModelConfig(
        width=16,
        heads=HeadsConfig(count=4),
        feed_forward=FeedForwardConfig(width=24),
        encoder=encoder or EncoderConfig(layers=2, positions=Learned(positions), attention=Full()),
        decoder=DecoderConfig(layers=1, positions=Learned(positions)) if decoder else None,
        dropout=0.0,
        init_std=0.3,
    )


def tiny_model(config: ModelConfig | None = None, known: Vocabulary | None = None, seed: int = 0) -> Model:
    """Weights away from where training begins: no bias is 0, no norm 1."""
    config, known = config or tiny_config(), known or vocabulary("<mask>")
    state = build_model(config, known.size, seed).state_dict()
    generator = torch.Generator().manual_seed(seed)
    state = {name: x + 0.1 * torch.randn(x.shape, generator=generator) for name, x in state.items()}
    return Model(config, known, state, parent={"kind": "test"})


def loaded(model: Model):
    """The modules, in evaluation mode."""
    made = make_model(model.config, model.vocabulary.size)
    made.load_state_dict(model.state)
    return made.eval()
