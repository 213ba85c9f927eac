"""Loading or initialisation of the generator for joint training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from corpora.errors import FarspanError
from corpora.keyed import make_key
from corpora.schemas.corpus import Corpus
from objectives.api.special_tokens import DOCUMENT_SEPARATOR, MASK, SpecialTokens
from trainer.checkpoint.trained_model import find_trained
from trainer.model.build import build_model
from trainer.model.config import GeneratorConfig, ModelConfig
from trainer.model.masked_lm import MaskedLM
from trainer.scorer.models import find_model


@dataclass(frozen=True)
class Generator:
    """A masked language model to be trained together with an encoder-decoder.

    Attributes:
        model: encoder-only model in float32 on the CPU.
        special: special tokens of the model.
        positions: maximum input length; None if unlimited.
        identity: identity of the initial weights; None if they are random.
    """

    model: MaskedLM
    special: SpecialTokens
    positions: int | None
    identity: str | None


def open_generator(config: GeneratorConfig, corpus: Corpus, seed: int) -> Generator:
    """Load the generator, or initialise it randomly for the token ids of ``corpus``."""
    entry = corpus.manifest.tokenizer
    if config.initial is None:
        assert config.model is not None
        names = [DOCUMENT_SEPARATOR, MASK] if corpus.manifest.config["room_per_document"] else [MASK]
        special = SpecialTokens.append(entry["vocab_size"], entry["owned_tokens"], names)
        key = make_key(seed, "generator")  # a different seed, because its embeddings would otherwise equal the model's
        drawn = build_model(config.model, special.vocab_size, int.from_bytes(key[:4], "little"))
        assert isinstance(drawn, MaskedLM)
        return Generator(drawn, special, config.model.encoder.positions.limit, None)
    try:
        initial = find_model(config.initial)
    except FarspanError as error:
        raise FarspanError(f"generator.initial: {error}") from error
    if initial.tokenizer_fingerprint != entry["fingerprint"]:
        raise FarspanError(
            f"generator.initial {config.initial} has the tokenizer with fingerprint {initial.tokenizer_fingerprint}, "
            f"{corpus.folder} {entry['fingerprint']}; give a generator trained on a corpus with this tokenizer"
        )
    model = initial.load()
    if not isinstance(model, MaskedLM):
        raise FarspanError(
            f"generator.initial {config.initial} is not a run of `farspan train`; give one with an encoder alone, or "
            "score with it as data.objective.scorer"
        )
    return Generator(model, initial.special, initial.positions, initial.fingerprint)


def generator_config(config: GeneratorConfig) -> ModelConfig:
    """Read the generator's configuration without its weights."""
    if config.model is not None:
        return config.model
    assert config.initial is not None
    trained = find_trained(Path(config.initial))
    return (trained.generator or trained).config
