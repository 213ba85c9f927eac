"""The generator before its first update: drawn, or read from another run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from objectives.api.special_tokens import MASK
from tests.artefacts import small_tokenizer
from tests.trainer.joint_parts import LENGTH, SEED, make_generator, make_rows
from tests.trainer.toy import toy_recipe
from trainer.generator_config import GeneratorConfig
from trainer.model.build import build_model
from trainer.scorer.generator import Generator, open_generator
from trainer.scorer.models import FoundModel


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    return make_rows(tmp_path_factory.mktemp("joint") / "corpus")


@pytest.fixture
def generator() -> Generator:
    return make_generator()


def test_a_generator_is_drawn_unlike_its_model(corpus):
    config = replace(toy_recipe("unused").model, decoder=None)
    generator = open_generator(GeneratorConfig(mode="joint", model=config), Corpus(corpus), SEED)
    assert MASK in generator.special.ids
    assert generator.positions == config.encoder.positions.limit
    other = build_model(config, generator.special.vocab_size, SEED)
    assert not torch.equal(generator.model.tokens.weight, other.tokens.weight)
    again = open_generator(GeneratorConfig(mode="joint", model=config), Corpus(corpus), SEED)
    assert torch.equal(generator.model.tokens.weight, again.model.tokens.weight)


def test_a_generator_of_another_tokenizer_is_refused(corpus, generator, monkeypatch):
    found = FoundModel("run", "f", "another tokenizer", generator.special, LENGTH, lambda: generator.model)
    monkeypatch.setattr("trainer.scorer.generator.find_model", lambda path: found)
    with pytest.raises(FarspanError, match=r"generator.initial run has the tokenizer with fingerprint another"):
        open_generator(GeneratorConfig(mode="joint", initial="run"), Corpus(corpus), SEED)
    same = replace(found, tokenizer_fingerprint=small_tokenizer().fingerprint)
    monkeypatch.setattr("trainer.scorer.generator.find_model", lambda path: same)
    opened = open_generator(GeneratorConfig(mode="joint", initial="run"), Corpus(corpus), SEED)
    assert (opened.model, opened.positions, opened.identity) == (generator.model, LENGTH, "f")
