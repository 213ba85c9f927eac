"""Tests of the texts in progress, of sources and of options."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from trainer.generation.config import GenerationConfig
from trainer.generation.sources import DecoderIds, Generated, Sources
from trainer.generation.texts import Texts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beams": 0}, "generation.beams is 0; it must be at least 1"),
        ({"max_tokens": 0}, "generation.max_tokens is 0"),
        ({"min_tokens": 9, "max_tokens": 8}, "generation.min_tokens is 9, above generation.max_tokens 8"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram is -1"),
        ({"first_tokens": (1, 2), "max_tokens": 1}, "first_tokens are 2, above"),
        ({"length_penalty": float("inf")}, "length_penalty is inf"),
        ({"length_penalty": float("nan")}, "length_penalty is nan"),
        ({"length_penalty": 200}, "length_penalty is 200, with which the penalty of a text of 256 tokens is no float"),
        ({"length_penalty": -200.0, "score": "gnmt"}, "length_penalty is -200"),
        ({"sample": True}, "set beams to 1"),
        ({"top_k": 3}, "generation.sample is not; set it"),
        ({"beams": 1, "sample": True, "top_p": 0.0}, "top_p is 0.0"),
        ({"beams": 1, "sample": True, "temperature": 0.0}, "temperature is 0.0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(FarspanError, match=message):
        GenerationConfig(**options)


def test_penalties():
    assert GenerationConfig(length_penalty=2.0).penalty(3) == 9
    assert GenerationConfig(score="gnmt", length_penalty=0.6).penalty(7) == pytest.approx(2**0.6)
    assert [GenerationConfig(length_penalty=0.0, score=score).penalty(5) for score in ("power", "gnmt")] == [1, 1]


IDS = torch.zeros(2, 5, dtype=torch.int64)


def test_samples_are_rows_unless_rows_are_given():
    assert len(Sources(source_ids=IDS)) == 2
    assert Sources(source_ids=IDS).encoder_rows.tolist() == [0, 1]
    several = Sources(source_ids=IDS, rows=np.array([1, 1, 0]))
    assert len(several) == 3
    assert several.encoder_rows.tolist() == [1, 1, 0]
    assert len(Sources(source_ids=IDS, rows=np.zeros(0, np.int64))) == 0
    assert len(Generated([np.zeros(3, np.int32)], np.zeros(1, np.float32))) == 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"source_padding_mask": torch.ones(2, 4, dtype=torch.bool)}, r"source_padding_mask is \(2, 4\), source_ids"),
        ({"segment_ids": torch.ones(1, 5)}, r"segment_ids is \(1, 5\), source_ids \(2, 5\); align them"),
        ({"global_positions": torch.ones(5, dtype=torch.bool)}, r"global_positions is \(5,\)"),
        ({"prompts": Ragged.from_rows([[1]], np.int32)}, "1 prompts for 2 samples; give one for each"),
        ({"seeds": np.zeros(3, np.uint64), "rows": np.array([0, 1])}, "3 seeds for 2 samples"),
        ({"rows": np.array([0, 2, 1])}, "sample 1 has row 2, but there are 2 encoder rows"),
        ({"rows": np.array([1, 0, -1])}, "sample 2 has row -1, but there are 2 encoder rows"),
    ],
)
def test_fields_of_different_lengths_are_refused(fields, said):
    with pytest.raises(FarspanError, match=said):
        Sources(source_ids=IDS, **fields)


DECODER_IDS, VOCABULARY = DecoderIds(start=2, end=2, pad=1), 7

PREFIXES = [np.array([2]), np.array([2, 5, 6]), np.array([2, 4])]

CPU = torch.device("cpu")


def table(seed):
    """Logits of a made-up model, which depend on the last token alone."""
    return 3 * torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def texts_of(**options):
    return Texts(PREFIXES, GenerationConfig(**{"max_tokens": 5, **options}), DECODER_IDS, None, CPU)


def step(texts, model):
    """One step of all texts; the text that each one continues."""
    return texts.advance(model[texts.tokens])


@pytest.mark.parametrize("seed", range(4))
def test_one_beam_is_the_most_likely_token_again_and_again(seed):
    model, texts = table(seed), texts_of(beams=1)
    for _ in range(6):
        step(texts, model)
    for sample, prefix in enumerate(PREFIXES):
        last, written = int(prefix[-1]), []
        while len(written) < 5:
            logits = model[last].clone()
            logits[DECODER_IDS.pad] = -torch.inf
            last = int(logits.argmax())
            if last == DECODER_IDS.end:
                break
            written.append(last)
        length = int(texts.best_length[sample])
        assert texts.best[sample, len(prefix) : len(prefix) + length].tolist() == written
    assert texts.finished().all()


def test_histories_are_the_parents_texts_and_one_more_token():
    model, texts = table(0), texts_of(beams=3, min_tokens=5)
    for _ in range(4):
        before, positions = texts.history.flatten(0, 1).clone(), texts.positions.clone()
        parents = step(texts, model)
        assert torch.equal(texts.positions, positions + 1)
        after = texts.history.flatten(0, 1)
        for text, parent in enumerate(parents.tolist()):
            assert text // 3 == parent // 3  # of the same sample
            length = int(positions[text // 3]) + 1
            assert torch.equal(after[text, :length], before[parent, :length])
            assert after[text, length] == texts.tokens[text]
    assert torch.equal(texts.row_positions, texts.positions.repeat_interleave(3))
    assert (texts.live.diff(dim=1) <= 0).all()  # in descending order


def test_texts_share_the_columns_in_which_all_beams_agree():
    model, texts = table(1), texts_of(beams=3, min_tokens=5)
    known = texts.shared_columns()
    assert known == 1  # the shortest prefix
    for _ in range(4):
        step(texts, model)
        expected = min(
            next((i for i in range(int(last) + 1) if len(set(rows[:, i].tolist())) > 1), int(last) + 1)
            for rows, last in zip(texts.history, texts.positions, strict=True)
        )
        assert texts.shared_columns() == expected >= known
        known = expected


def test_samples_that_are_kept_go_on_as_they_would_have():
    model = table(2)
    whole, few = texts_of(beams=2, min_tokens=3), texts_of(beams=2, min_tokens=3)
    for number in range(6):
        step(whole, model)
        step(few, model)
        if number == 1:
            few.keep(np.array([0, 2]))
            assert len(few) == 2
    for name in ("best", "best_length", "kept", "live", "done"):
        assert torch.equal(getattr(few, name), getattr(whole, name)[[0, 2]]), name


def test_a_text_of_the_most_tokens_ends():
    """Nothing but the end may follow, however unlikely it is."""
    model = table(3)
    model[:, DECODER_IDS.end] = -50.0
    texts = texts_of(beams=2)
    for number in range(6):
        assert not texts.finished().any()
        assert texts.step == number
        step(texts, model)
    assert texts.finished().all()
    assert texts.best_length.tolist() == [5, 5, 5]
    assert texts.kept[:, 0].isfinite().all()
