"""Tests of vocabularies, also of published tokenizers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from corpora.errors import FarspanError
from objectives.api.protocol import CorpusFacts, load_objective
from objectives.api.special_tokens import SpecialTokens
from tests.published_tokenizers import bart_files, pegasus_files, t5_files, tokenizer_of
from tests.trainer.conversion.models import tiny_config, tiny_model, vocabulary
from trainer.conversion.convert import initial_model
from trainer.conversion.hugging_face import read_hugging_face
from trainer.conversion.model_folder import write_model_folder
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


_LAYERS = {f"{side}_{part}": size for side in ("encoder", "decoder") for part, size in (("layers", 1), ("ffn_dim", 24))}

_HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "d_model": 16, "max_position_embeddings": 16}

T5 = T5ForConditionalGeneration(T5Config(vocab_size=40, d_model=16, d_kv=8, num_heads=2, num_layers=1, d_ff=24))

PEGASUS = PegasusForConditionalGeneration(PegasusConfig(vocab_size=22, **_LAYERS, **_HEADS))

BART = BartForConditionalGeneration(BartConfig(vocab_size=18, **_LAYERS, **_HEADS, forced_eos_token_id=None))

LEARNED = [
    # T5's table has rows that its tokenizer has no ids for, as the released one has 28.
    (T5, t5_files, ("span", "t5"), {f"<sentinel-{k}>": f"<extra_id_{k}>" for k in range(10)}),
    (T5, t5_files, ("principal_sentences", "longt5_code"), {"<unk>": "<unk>"}),
    (PEGASUS, pegasus_files, ("principal_sentences", "pegasus"), {"<sent-mask>": "<mask_1>"}),
    (BART, bart_files, ("entity_pyramid", "primera"), {"<mask>": "<mask>"}),
]


@pytest.mark.parametrize(("model", "files", "preset", "names"), LEARNED, ids=["T5", "LongT5", "PEGASUS", "BART"])
def test_a_run_begins_with_the_learned_rows(model, files, preset, names, tmp_path):
    model.save_pretrained(tmp_path / "theirs")
    for name, content in files().items():
        (tmp_path / "theirs" / name).write_bytes(content)
    converted = read_hugging_face(tmp_path / "theirs")
    write_model_folder(converted, tmp_path / "ours")

    tokenizer = tokenizer_of(files())
    special = load_objective(*preset).validate(CorpusFacts(tokenizer.vocab_size, tokenizer.owned_tokens, 512, 400, 1))
    vocabulary = Vocabulary.of(special, tokenizer.fingerprint, converted.vocabulary.decoder_start)
    begun = initial_model(tmp_path / "ours", converted.config, vocabulary).state["tokens.weight"]

    assert len(begun) == special.vocab_size
    table, ids = model.get_input_embeddings().weight, tokenizer.owned_tokens
    for ours, theirs in {**names, "<pad>": "<pad>", "<eos>": "<eos>"}.items():
        assert special[ours] == ids[theirs]
        assert torch.equal(begun[special[ours]], table[ids[theirs]])
    words = [number for number in range(tokenizer.vocab_size) if number not in special.ids.values()]
    assert torch.equal(begun[words], table[words])
    # Sentinels beyond T5's own begin near the mean of those.
    further = special.sentinels[len(names) :].tolist()
    mean = begun[special.sentinels[: len(names)].tolist()].mean(0) if further else None
    for number in further:
        assert number >= tokenizer.vocab_size
        assert (begun[number] - mean).norm() < 0.5 * mean.norm()
