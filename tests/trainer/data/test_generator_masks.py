"""Both views of rows whose masks a generator chooses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED
from objectives.api.special_tokens import MASK, SpecialTokens
from tests.trainer.joint_parts import LENGTH, data_of, make_generator, make_rows, open_rows
from trainer.data.config import DataConfig, ObjectiveConfig, SourceConfig
from trainer.data.generator_masks import Candidates
from trainer.generator_config import with_scorer
from trainer.scorer.generator import Generator


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    return make_rows(tmp_path_factory.mktemp("joint") / "corpus")


@pytest.fixture
def generator() -> Generator:
    return make_generator()


def test_data_that_joint_training_cannot_use_is_refused(corpus, generator):
    data = data_of(corpus)
    span = replace(data, objective=ObjectiveConfig(name="span"))
    scored = with_scorer(data, "some run")
    mixed = DataConfig(
        mixture=tuple(SourceConfig(name=name, corpus=corpus, objective=data.objective) for name in "ab"),
        source_length=LENGTH,
    )
    for wrong in (span, scored, mixed, replace(data, masks="masks")):
        with pytest.raises(FarspanError, match=r"joint.*trains on one corpus with data.objective model_based"):
            open_rows(wrong, generator)
    with pytest.raises(FarspanError, match=r"source_length is 128, but the generator has 64 positions"):
        open_rows(data, replace(generator, positions=64))


def test_both_views_are_sources(corpus, generator):
    rows = open_rows(data_of(corpus), generator)
    candidates, indices = Candidates(rows), np.arange(5)
    shown = candidates.examples(indices)
    assert (shown.source_ids[shown.labels != IGNORED] == generator.special[MASK]).all()
    assert rows.examples(indices).target_lengths.all()
    equal = rows.chosen(indices, np.ones(shown.labels.shape))
    assert np.array_equal(rows.examples(indices).source_ids, equal.source_ids)
    more = SpecialTokens.merge([rows.special, generator.special], rows.tokenizer_size)
    again = candidates.with_special(more)
    assert again.special == again.rows.special == more
    assert np.array_equal(again.examples(indices).source_ids, shown.source_ids)
    other = open_rows(data_of(corpus, candidate_density=0.2), generator)
    assert len({rows.fingerprint, candidates.fingerprint, other.fingerprint}) == 2
    assert candidates.origin(0) == rows.origin(0)
    assert rows.origin(0).endswith("row 0")


def test_losses_decide_the_choice_and_padding_does_not(corpus, generator):
    rows, indices = open_rows(data_of(corpus), generator), np.arange(8)
    shown = rows.candidates(indices)
    losses = np.random.default_rng(0).random(shown.labels.shape)
    easy = rows.chosen(indices, np.where(shown.labels != IGNORED, losses, 0.0))
    hard = rows.chosen(indices, np.where(shown.labels != IGNORED, 1 - losses, 0.0))
    assert not np.array_equal(easy.target_ids, hard.target_ids)
    assert np.array_equal(rows.chosen(indices, np.pad(losses, ((0, 0), (0, 9)))).target_ids,
                          rows.chosen(indices, losses).target_ids)  # fmt: skip
