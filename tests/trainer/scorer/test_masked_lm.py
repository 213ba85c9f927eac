"""Masked language models of Hugging Face, divided into backbone and head."""

from __future__ import annotations

import pytest
import torch
import transformers

from corpora.errors import FarspanError
from tests.tiny_encoder import make_encoder
from tests.tiny_masked_lm import ARCHITECTURES, make_masked_lm
from tests.trainer.masked_lm_runs import masked_rows, scorer_of
from trainer.scorer.encoder import find_encoder
from trainer.scorer.masked_lm import describe_positions, load_masked_lm


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return make_masked_lm(str(tmp_path_factory.mktemp("models") / "bert"))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_backbone_and_head_together_are_the_model(tmp_path, architecture):
    """The head is given the states of some positions only, in any order."""
    folder = make_masked_lm(str(tmp_path), architecture)
    files = find_encoder(folder)
    theirs = getattr(transformers, f"{architecture}ForMaskedLM").from_pretrained(folder).eval()
    ours = load_masked_lm(files)
    ids = torch.randint(5, 60, (2, 12), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(12) < torch.tensor([[12], [7]])
    with torch.inference_mode():
        expected = theirs(input_ids=ids, attention_mask=mask.long()).logits
        states = ours.encode(ids.int(), mask)
        found = ours.logits(states[mask].flip(0)).flip(0)
    torch.testing.assert_close(found, expected[mask], atol=1e-4, rtol=1e-4)
    assert describe_positions(files) == 16


def test_a_model_without_a_head_is_refused_by_the_names_of_its_weights(tmp_path):
    files = find_encoder(make_encoder(str(tmp_path)))
    with pytest.raises(FarspanError, match="its weights have no head that predicts tokens"):
        describe_positions(files)


def test_a_model_that_predicts_positions_together_is_refused(bert, monkeypatch):
    """The head is applied to the asked positions alone; that has to be the same."""
    from transformers.models.bert.modeling_bert import BertOnlyMLMHead

    forward = BertOnlyMLMHead.forward
    monkeypatch.setattr(BertOnlyMLMHead, "forward", lambda self, x: forward(self, x + x.mean(1, keepdim=True)))
    scorer = scorer_of(bert)
    with pytest.raises(FarspanError, match="BertForMaskedLM predicts more than one position at a time"):
        scorer.losses(*masked_rows(scorer.special, [20], 80))
