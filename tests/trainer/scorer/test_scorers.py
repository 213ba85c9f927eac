"""Scorers against the models themselves, window by window."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from corpora.errors import FarspanError
from corpora.tokenizers.load import load_tokenizer
from objectives.api.examples import IGNORED
from tests.tiny_masked_lm import ARCHITECTURES, make_masked_lm
from tests.trainer.masked_lm_runs import masked_rows, plain_losses, scorer_of

POSITIONS = 16

LENGTHS = [0, 1, 5, 100, POSITIONS - 2, POSITIONS - 1, 2 * (POSITIONS - 2), 37]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return make_masked_lm(str(tmp_path_factory.mktemp("models") / "bert"))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_losses_are_those_of_the_model_itself(tmp_path, architecture):
    folder = make_masked_lm(str(tmp_path), architecture)
    scorer = scorer_of(folder)
    assert scorer.room == POSITIONS - 2
    assert "model" not in vars(scorer)  # a plan needs no weights
    tokenizer = load_tokenizer(folder)
    assert scorer.tokenizer_fingerprint == tokenizer.fingerprint
    rows = masked_rows(scorer.special, LENGTHS, tokenizer.vocab_size)
    losses = scorer.losses(*rows)
    model = getattr(transformers, f"{architecture}ForMaskedLM").from_pretrained(folder).eval()
    expected = plain_losses(lambda ids: model(input_ids=ids).logits, scorer.special, scorer.room, *rows)
    assert losses.dtype == np.float32
    assert (losses[rows[2] == IGNORED] == 0).all()
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-4)
    assert losses[rows[2] != IGNORED].std() > 0.1


def test_a_row_does_not_depend_on_the_rows_beside_it(bert):
    scorer = scorer_of(bert)
    ids, lengths, labels = masked_rows(scorer.special, LENGTHS, 80)
    together = scorer.losses(ids, lengths, labels)
    for row in range(len(ids)):
        alone = scorer.losses(ids[row : row + 1], lengths[row : row + 1], labels[row : row + 1])
        np.testing.assert_allclose(alone[0], together[row], rtol=1e-5, atol=1e-5)
    order = np.random.default_rng(1).permutation(len(ids))
    np.testing.assert_allclose(
        scorer.losses(ids[order], lengths[order], labels[order]), together[order], rtol=1e-5, atol=1e-5
    )
    assert np.array_equal(scorer.losses(ids, lengths, labels), together)


def test_many_batches_are_one(bert, monkeypatch):
    scorer = scorer_of(bert)
    rows = masked_rows(scorer.special, LENGTHS, 80)
    expected = scorer.losses(*rows)
    monkeypatch.setattr("trainer.scorer.scorers.BATCH_TOKENS", {"cpu": 20})
    monkeypatch.setattr("trainer.scorer.scorers._CHUNK", {"cpu": 3})
    np.testing.assert_allclose(scorer.losses(*rows), expected, rtol=1e-5, atol=1e-5)


def test_nothing_asked_is_nothing_run(bert):
    scorer = scorer_of(bert)
    ids, lengths, labels = masked_rows(scorer.special, [0, 40], 80, share=0)
    assert not scorer.losses(ids, lengths, labels).any()
    assert scorer.losses(ids[:0, :0], lengths[:0], labels[:0, :0]).shape == (0, 0)
    assert "model" not in vars(scorer)


def test_bfloat16_agrees_and_is_recorded(bert):
    exact, rounded = scorer_of(bert), scorer_of(bert, precision="bfloat16")
    rows = masked_rows(exact.special, LENGTHS, 80)
    asked = rows[2] != IGNORED
    expected = exact.losses(*rows)[asked]
    found = rounded.losses(*rows)[asked]
    assert np.abs(found - expected).mean() < 0.02 * expected.mean()
    assert rounded.fingerprint == f"{exact.fingerprint}-bfloat16"


def test_threads_are_pinned_and_given_back(bert):
    before = torch.get_num_threads()
    scorer = scorer_of(bert, threads=1)
    seen = []
    encode = scorer.model.encode
    scorer.model.encode = lambda *inputs: (seen.append(torch.get_num_threads()), encode(*inputs))[1]
    scorer.losses(*masked_rows(scorer.special, [20], 80))
    assert set(seen) == {1}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "device is 'tpu'; give auto, cpu or cuda"),
        ({"precision": "int8"}, "precision is 'int8'; give auto, float32 or bfloat16"),
        ({"threads": 0}, "threads is 0; give a positive number, or None"),
    ],
)
def test_options_are_checked(bert, options, message):
    with pytest.raises(FarspanError, match=message):
        scorer_of(bert, **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a device that is there")
def test_a_device_that_is_not_there_is_refused(bert):
    with pytest.raises(FarspanError, match="finds no CUDA device"):
        scorer_of(bert, device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_losses_agree(bert):
    exact = scorer_of(bert)
    rows = masked_rows(exact.special, LENGTHS, 80)
    expected = exact.losses(*rows)
    np.testing.assert_allclose(
        scorer_of(bert, device="cuda", precision="float32").losses(*rows), expected, rtol=1e-3, atol=1e-3
    )
    assert scorer_of(bert, device="auto").fingerprint == f"{exact.fingerprint}-bfloat16"
