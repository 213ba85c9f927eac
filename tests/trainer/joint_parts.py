"""A corpus, data and small models for joint training."""

from dataclasses import replace

from objectives.api.special_tokens import MASK, SpecialTokens
from tests.artefacts import make_corpus, small_tokenizer
from tests.trainer.toy import toy_recipe
from trainer.data.config import DataConfig, ObjectiveConfig
from trainer.data.generator_masks import GeneratorMaskedCorpus, open_generator_masked
from trainer.model.build import build_model
from trainer.model.config import EncoderConfig
from trainer.model.patterns.full import Full
from trainer.model.positions import Learned
from trainer.scorer.models import Generator

SEED, LENGTH = 5, 128


def make_rows(folder: object, words: int | None = None) -> str:
    """A corpus of rows of ``LENGTH`` positions, of so many different tokens."""
    return make_corpus(str(folder), documents=30, sequence_length=LENGTH, words=words)


def data_of(corpus: str, **options: object) -> DataConfig:
    objective = ObjectiveConfig(name="model_based", preset="bart_ls", options={"density": 0.1, **options}, seed=SEED)
    return DataConfig(corpus=corpus, objective=objective, source_length=LENGTH, target_length=64, source_multiple=8)


def small_model(vocab_size: int, seed: int = 0, decoder: bool = False):
    config = toy_recipe("unused", dropout=0.0).model
    encoder = EncoderConfig(layers=1, positions=Learned(LENGTH), attention=Full())
    sides = config.decoder and replace(config.decoder, positions=Learned(64))
    config = replace(config, encoder=encoder, decoder=sides if decoder else None, init_std=0.3)
    return build_model(config, vocab_size, seed)


def make_generator() -> Generator:
    tokenizer = small_tokenizer()
    special = SpecialTokens.append(tokenizer.vocab_size, tokenizer.owned_tokens, [MASK])
    return Generator(small_model(special.vocab_size, seed=1), special, LENGTH, None)


def open_rows(data: DataConfig, generator: Generator) -> GeneratorMaskedCorpus:
    return open_generator_masked(data, generator.special, generator.positions)
