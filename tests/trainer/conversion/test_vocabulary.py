from dataclasses import replace

import pytest
import torch

from corpora.errors import FarspanError
from objectives.api.special_tokens import SpecialTokens
from tests.trainer.conversion.models import tiny_config, tiny_model, vocabulary
from trainer.conversion.vocabulary import Vocabulary, change_vocabulary

OLD = vocabulary("<mask>")  # 23 tokens, <mask> 23


def test_tokens_keep_their_rows_wherever_they_stand():
    new = vocabulary("<sent-mask>", "<mask>", sentinels=2)
    assert new.special["<mask>"] == 24
    state = tiny_model(known=OLD).state
    changed = change_vocabulary(state, OLD, new)["tokens.weight"]
    assert changed.shape == (27, 16)
    assert torch.equal(changed[:23], state["tokens.weight"][:23])
    assert torch.equal(changed[24], state["tokens.weight"][23])


def test_new_rows_are_near_the_mask_and_all_different():
    new = vocabulary("<mask>", sentinels=30)
    state = tiny_model(known=OLD).state
    rows = change_vocabulary(state, OLD, new)["tokens.weight"][24:]
    mask = state["tokens.weight"][23]
    assert ((rows - mask).norm(dim=1) < 0.3 * mask.norm()).all()
    distances = torch.cdist(rows, rows) + torch.eye(len(rows))
    assert distances.min() > 0.05 * mask.norm()


def test_a_new_row_depends_on_its_name_alone():
    state = tiny_model(known=OLD).state
    few, many = (vocabulary("<mask>", sentinels=count) for count in (1, 3))
    rows = [change_vocabulary(state, OLD, new)["tokens.weight"] for new in (few, many)]
    assert torch.equal(rows[0][few.special["<sentinel-0>"]], rows[1][many.special["<sentinel-0>"]])


def test_without_a_mask_new_rows_begin_at_the_mean():
    old = vocabulary()
    state = tiny_model(known=old).state
    row = change_vocabulary(state, old, vocabulary("<mask>"))["tokens.weight"][23]
    mean = state["tokens.weight"].mean(0)
    assert (row - mean).norm() < 0.3 * mean.norm()


def test_the_bias_of_a_head_grows_with_its_table():
    model = tiny_model(tiny_config(decoder=False), OLD)
    changed = change_vocabulary(model.state, OLD, vocabulary("<mask>", sentinels=2))
    assert changed["bias"].shape == (26,)
    assert torch.equal(changed["bias"][24:], model.state["bias"][[23, 23]])


def test_rows_that_nothing_used_give_way_and_those_of_the_tokenizer_do_not():
    """T5's table is wider than its tokenizer, whose last ids are sentinels of its own."""
    old = Vocabulary(SpecialTokens({"<pad>": 0, "<eos>": 1}, 30), tokenizer_size=25)
    new = Vocabulary.of(SpecialTokens({"<pad>": 0, "<eos>": 1, "<sentinel-0>": 24, "<mask>": 25}, 26), None)
    table = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    changed = change_vocabulary({"tokens.weight": table}, old, new)["tokens.weight"]
    assert torch.equal(changed[:25], table[:25])
    assert not torch.equal(changed[25], table[25])


def test_ids_of_another_tokenizer_are_refused():
    old, new = vocabulary(fingerprint="a" * 64), vocabulary(fingerprint="b" * 64)
    with pytest.raises(FarspanError, match="of tokenizer aaaaaaaaaaaa, the data those of bbbbbbbbbbbb"):
        change_vocabulary({}, old, new)
    assert change_vocabulary({}, old, replace(new, tokenizer_fingerprint=None)) == {}


def test_a_vocabulary_survives_a_manifest():
    known = vocabulary("<mask>", sentinels=3, fingerprint="f")
    assert Vocabulary.from_json(known.to_json()) == known
