"""BERT and RoBERTa, whose layers are the same."""

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM

from corpora.errors import FarspanError
from tests.trainer.conversion.oracle import VOCAB, assert_same_masked_lm, disturbed
from trainer.conversion.families import bert, roberta
from trainer.conversion.names import load_state

SIZES = {
    "vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
    "max_position_embeddings": 22, "initializer_range": 0.2, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
FAMILIES = {"bert": (bert, BertConfig, BertForMaskedLM, 0), "roberta": (roberta, RobertaConfig, RobertaForMaskedLM, 1)}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("lengths", [[1], [6, 6], [20, 3, 11]])
def test_logits_and_gradients_are_those_of_hugging_face(name, lengths):
    family, config, kind, pad = FAMILIES[name]
    theirs = disturbed(kind(config(**SIZES, layer_norm_eps=1e-3)))
    assert_same_masked_lm(family, theirs, lengths, pad)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("option", [{"hidden_act": "relu"}, {"tie_word_embeddings": False}, {"is_decoder": True}])
def test_what_our_models_cannot_do_is_refused_by_its_field(name, option):
    family, config, _, _ = FAMILIES[name]
    (field,) = option
    with pytest.raises(FarspanError, match=field):
        family.read_config(config(**SIZES, **option).to_dict())


def test_the_heads_that_only_pretraining_used_are_passed_over():
    theirs = BertForMaskedLM(BertConfig(**SIZES))
    names = bert.name_map(bert.read_config(theirs.config.to_dict()))
    more = {"bert.pooler.dense.weight": torch.ones(16, 16), "cls.seq_relationship.bias": torch.ones(2)}
    assert load_state(names, {**theirs.state_dict(), **more}, None, bert.IGNORED).keys() == names.keys()
