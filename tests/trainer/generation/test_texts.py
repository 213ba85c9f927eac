"""The texts in progress against lists of whole texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from trainer.generation.config import GenerationConfig
from trainer.generation.sources import DecoderIds
from trainer.generation.texts import Texts

IDS, VOCABULARY = DecoderIds(start=2, end=2, pad=1), 7
PREFIXES = [np.array([2]), np.array([2, 5, 6]), np.array([2, 4])]
CPU = torch.device("cpu")


def table(seed):
    """Logits of a made-up model, which depend on the last token alone."""
    return 3 * torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(seed))


def texts_of(**options):
    return Texts(PREFIXES, GenerationConfig(**{"max_tokens": 5, **options}), IDS, None, CPU)


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
            logits[IDS.pad] = -torch.inf
            last = int(logits.argmax())
            if last == IDS.end:
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
    model[:, IDS.end] = -50.0
    texts = texts_of(beams=2)
    for number in range(6):
        assert not texts.finished().any()
        assert texts.step == number
        step(texts, model)
    assert texts.finished().all()
    assert texts.best_length.tolist() == [5, 5, 5]
    assert texts.kept[:, 0].isfinite().all()
