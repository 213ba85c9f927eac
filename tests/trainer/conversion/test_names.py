"""Tests of names, fields and vocabularies of Hugging Face's models and of published tokenizers."""

from dataclasses import replace
from itertools import chain
from typing import Any

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
from transformers.activations import ACT2FN

from corpora.errors import FarspanError
from objectives.api.protocol import CorpusFacts, load_objective
from objectives.api.special_tokens import SpecialTokens
from tests.published_tokenizers import bart_files, pegasus_files, t5_files, tokenizer_of
from tests.trainer.conversion.models import tiny_config, tiny_model, vocabulary
from trainer.conversion.convert import initial_model
from trainer.conversion.families import bart, bert, longformer, pegasus, roberta, t5
from trainer.conversion.family import FAMILIES, family_of
from trainer.conversion.hugging_face import read_hugging_face, write_hugging_face
from trainer.conversion.model_folder import write_model_folder
from trainer.conversion.names import Tensors, load_state, read_activation, write_activation
from trainer.conversion.vocabulary import Vocabulary, change_vocabulary
from trainer.model.config import EncoderConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import ACTIVATIONS
from trainer.model.patterns import BlockGlobal, Full
from trainer.model.positions import Learned
from trainer.recipe import load_recipe


def test_each_module_is_a_family_with_types_and_patterns_of_its_own():
    assert {bart, bert, longformer, pegasus, roberta, t5} <= set(FAMILIES)
    for family in FAMILIES:
        wanted = ["MODEL_TYPES", "IGNORED", "PATTERNS", "read_config", "name_map"]
        assert not {*wanted, *(["write_config"] if family.PATTERNS else [])} - set(vars(family))
        assert family.MODEL_TYPES
    for kind in ("MODEL_TYPES", "PATTERNS"):
        names = list(chain.from_iterable(getattr(family, kind) for family in FAMILIES))
        assert len(names) == len(set(names))
    assert all(family_of(kind) is family for family in FAMILIES for kind in family.MODEL_TYPES)


@pytest.mark.parametrize(
    ("attention", "pooling", "message"),
    [
        (BlockGlobal(8, 2), None, "attention pattern 'block_global'"),
        (Full(), Pooling(1, 6, 4, 3), "model.encoder.pooling.layers: farspan 1, Hugging Face None"),
    ],
)
def test_a_model_that_hugging_face_has_no_class_for_is_refused(tmp_path, attention, pooling, message):
    encoder = EncoderConfig(layers=2, positions=Learned(16), attention=attention, pooling=pooling)
    with pytest.raises(FarspanError, match=message):
        write_hugging_face(tiny_model(tiny_config(encoder)), tmp_path / "out")


@pytest.mark.parametrize("option", [{"global_cross_attention": True}, {"cross_attention": (0,)}])
def test_decoders_that_pegasus_x_of_hugging_face_lacks_are_refused(tmp_path, option):
    config = load_recipe("tiny_pegasus_x").model
    config = replace(config, decoder=replace(config.decoder, **option))
    (field,) = option
    with pytest.raises(FarspanError, match=f"model.decoder.{field}: farspan .*, Hugging Face"):
        write_hugging_face(tiny_model(config), tmp_path / "out")


def test_every_field_that_cannot_be_said_is_listed(tmp_path):
    config = tiny_config()
    decoder = replace(config.decoder, positions=Learned(12))
    config = replace(config, norm=replace(config.norm, eps=1e-3), decoder=decoder)
    with pytest.raises(FarspanError) as raised:
        write_hugging_face(tiny_model(config), tmp_path / "out")
    assert "model.norm.eps: farspan 0.001, Hugging Face 1e-05" in str(raised.value)
    assert "model.decoder.positions.count: farspan 12, Hugging Face 16" in str(raised.value)
    assert not list(tmp_path.iterdir())


NAMES = {
    "qkv": Tensors(("q", "k", "v")),
    "positions": Tensors(("places",), skip_rows=2),
    "typed": Tensors(("rows",), add_row="types"),
}

SHAPES = {"qkv": torch.Size([6, 3]), "positions": torch.Size([3, 3]), "typed": torch.Size([4, 3])}


def stored():
    sizes = {"q": 2, "k": 2, "v": 2, "places": 5, "rows": 4, "types": 2}
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(rows, 3, generator=generator) for name, rows in sizes.items()}


def test_everything_wrong_is_listed_at_once():
    theirs = stored()
    del theirs["k"]
    theirs |= {"lm_head.bias": torch.zeros(3), "final_logits_bias": torch.ones(1, 3), "places": torch.zeros(9, 3)}
    with pytest.raises(FarspanError) as raised:
        load_state(NAMES, theirs, SHAPES, ["final_logits_bias"])
    (line,) = str(raised.value).splitlines()
    assert "missing: k" in line
    assert "unexpected: lm_head.bias (3,)" in line
    assert "not zero: final_logits_bias" in line
    assert "shape: places (9, 3) makes positions (7, 3), not (3, 3)" in line


def test_of_many_the_first_few_are_named_and_parts_that_cannot_be_joined():
    with pytest.raises(FarspanError, match=r"beside them .missing: k; .*; and 2 more.; give the folder") as raised:
        load_state(NAMES, {}, SHAPES)
    assert len(str(raised.value).splitlines()) == 1
    with pytest.raises(FarspanError, match=r"cannot be joined into qkv: q \(2, 3\), k \(2, 5\), v \(2, 3\)"):
        load_state(NAMES, {**stored(), "k": torch.zeros(2, 5)})


def test_numbers_that_are_no_weights_are_listed():
    theirs = {**stored(), "k": torch.ones(2, 3, dtype=torch.int8)}
    theirs["places"][3, 1], theirs["types"][0, 0] = torch.nan, torch.inf
    with pytest.raises(FarspanError) as raised:
        load_state(NAMES, theirs, SHAPES)
    (line,) = str(raised.value).splitlines()
    assert "of integer type torch.int8: k" in line
    assert "not finite: places" in line
    assert "not finite: rows, types" in line


@pytest.mark.parametrize("theirs", ["gelu", "relu", "silu", "swish", "gelu_new", "gelu_pytorch_tanh"])
def test_an_activation_is_the_same_function_under_both_names(theirs):
    x, ours = torch.linspace(-4, 4, 41), read_activation({"f": theirs}, "f")
    torch.testing.assert_close(ACTIVATIONS[ours](x), ACT2FN[theirs](x))
    assert read_activation({"f": write_activation(ours)}, "f") == ours


OLD = vocabulary("<mask>")  # 23 tokens, <mask> 23


def test_tokens_keep_their_rows_wherever_they_stand():
    new = vocabulary("<sent-mask>", "<mask>", sentinels=2)
    assert new.special["<mask>"] == 24
    state = tiny_model(known=OLD).state
    changed = change_vocabulary(state, OLD, new)["tokens.weight"]
    assert changed.shape == (27, 16)
    assert torch.equal(changed[:23], state["tokens.weight"][:23])
    assert torch.equal(changed[24], state["tokens.weight"][23])


def test_new_rows_are_near_the_mask_all_different_and_depend_on_their_names_alone():
    state = tiny_model(known=OLD).state
    few, many = (vocabulary("<mask>", sentinels=count) for count in (1, 30))
    tables = [change_vocabulary(state, OLD, new)["tokens.weight"] for new in (few, many)]
    assert torch.equal(tables[0][few.special["<sentinel-0>"]], tables[1][many.special["<sentinel-0>"]])
    rows, mask = tables[1][24:], state["tokens.weight"][23]
    assert ((rows - mask).norm(dim=1) < 0.3 * mask.norm()).all()
    distances = torch.cdist(rows, rows) + torch.eye(len(rows))
    assert distances.min() > 0.05 * mask.norm()


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


_SIZES: dict[str, Any] = {"d_model": 16, "max_position_embeddings": 16} | {
    f"{side}_{part}": size
    for side in ("encoder", "decoder")
    for part, size in (("layers", 1), ("ffn_dim", 24), ("attention_heads", 2))
}

T5 = T5ForConditionalGeneration(T5Config(vocab_size=40, d_model=16, d_kv=8, num_heads=2, num_layers=1, d_ff=24))
PEGASUS = PegasusForConditionalGeneration(PegasusConfig(vocab_size=22, **_SIZES))
BART = BartForConditionalGeneration(BartConfig(vocab_size=18, **_SIZES, forced_eos_token_id=None))
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
