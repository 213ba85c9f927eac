"""Tests of BART, PEGASUS, BigBird-PEGASUS and exported BART-LS."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BigBirdPegasusConfig,
    BigBirdPegasusForConditionalGeneration,
    MBartConfig,
    MBartForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PegasusXConfig,
    PegasusXForConditionalGeneration,
)

from corpora.errors import FarspanError
from tests.trainer.conversion.models import (
    VOCAB,
    assert_same,
    assert_same_seq2seq,
    disturbed,
    loaded,
    ours,
    text,
    tiny_config,
    tiny_model,
    tokenizer_files,
)
from trainer.conversion.export import modeling_bart_ls
from trainer.conversion.families import bart, bigbird_pegasus, pegasus
from trainer.conversion.family import export_config, exportable_family
from trainer.conversion.hugging_face import read_hugging_face, write_hugging_face
from trainer.conversion.names import load_state, save_state
from trainer.model.build import make_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.patterns import Block, BlockGlobal, Full, Overlap, Staggered
from trainer.model.positions import Learned

SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 20,
    "init_std": 0.2, "dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip


def tiny_bart(**options):
    return disturbed(BartForConditionalGeneration(BartConfig(**{**SIZES, **options})))


@pytest.mark.parametrize(
    ("options", "lengths"),
    [
        *(({}, lengths) for lengths in ([1], [7, 7], [20, 3, 11], [1, 8])),
        *(({name: value}, [9, 4]) for name, value in (("scale_embedding", True), ("activation_function", "gelu_new"))),
    ],
)
def test_logits_and_gradients_are_those_of_hugging_face(options, lengths):
    assert_same_seq2seq(bart, tiny_bart(**options), lengths)


@pytest.mark.parametrize("lengths", [[1], [7, 7], [1, 8], [20, 3, 11]])
@pytest.mark.parametrize("options", [{}, {"scale_embedding": True}, {"activation_function": "relu"}])
def test_mbart_has_the_same_logits_and_gradients(lengths, options):
    model = disturbed(MBartForConditionalGeneration(MBartConfig(**{**SIZES, **options})))
    assert_same_seq2seq(bart, model, lengths)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("tie_word_embeddings", False), ("decoder_ffn_dim", 8)),
        *(("decoder_attention_heads", 2), ("activation_function", "tanh")),
    ],
)
def test_what_our_models_cannot_do_is_refused_by_its_field(field, value):
    with pytest.raises(FarspanError, match=field):
        bart.read_config(BartConfig(**{**SIZES, field: value}).to_dict())


@pytest.mark.parametrize("kind", [BartConfig, MBartConfig])
def test_a_written_configuration_is_read_back_as_it_was(kind):
    config = bart.read_config(kind(**SIZES, activation_dropout=0.25).to_dict())
    written = bart.write_config(config, VOCAB, {"<pad>": 1, "<bos>": 0, "<eos>": 2})
    assert written["model_type"] == kind.model_type
    assert bart.read_config(kind(**written).to_dict()) == config


LENGTHS = [[1, 1], [7, 3], [8, 5], [9, 8], [13, 1], [16, 12], [17, 9], [24, 16, 1], [29, 27], [40, 31]]


def _sees(pattern, query, key):
    """The paper's words once more, apart from those of the patterns."""
    if isinstance(pattern, Full):
        return True
    block = query // 8
    if isinstance(pattern, Overlap):
        return block * 8 - 4 <= key < block * 8 + 12
    if isinstance(pattern, BlockGlobal) and (query % 8 < 3 or key % 8 < 3):
        return True
    return block == key // 8


@pytest.mark.parametrize("pattern", [Full(), Block(8), Overlap(8), BlockGlobal(8, 3)], ids=lambda p: p.pattern)
@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param(one, id=str(one), marks=pytest.mark.slow if number % 2 and one is not LENGTHS[-1] else ())
        for number, one in enumerate(LENGTHS)
    ],
)
def test_logits_and_gradients_are_those_of_bart_under_the_dense_mask(pattern, lengths):
    theirs = tiny_bart(max_position_embeddings=40)
    full = ours(bart, theirs)
    config = bart.read_config(theirs.config.to_dict())
    model: Any = make_model(replace(config, encoder=replace(config.encoder, attention=pattern)), VOCAB)
    model.load_state_dict(full.state_dict())
    model.eval()

    (ids, real), (target, _) = text(lengths), text([5] * len(lengths), seed=1)
    places = range(ids.shape[1])
    seen = torch.tensor([[_sees(pattern, query, key) for key in places] for query in places])
    additive = torch.zeros(len(ids), 1, *seen.shape)
    additive = additive.masked_fill(~(seen & real[:, None, :])[:, None], torch.finfo(torch.float32).min)
    encoded = theirs.model.encoder(ids, attention_mask=additive)
    expected = theirs(encoder_outputs=encoded, attention_mask=real.long(), decoder_input_ids=target).logits
    found = model.logits(model.decode(target, model.encode(ids, None if real.all() else real)))
    assert_same(bart, theirs, model, expected, found)


PEGASUS_SIZES = {
    **SIZES, "encoder_layers": 3,  # plain, shifted and plain
    "max_position_embeddings": 40, "activation_function": "relu", "scale_embedding": True,
}  # fmt: skip

LONG = {"block_size": 8, "num_global_tokens": 3}


def tiny_pegasus(**options):
    model = disturbed(PegasusForConditionalGeneration(PegasusConfig(**{**PEGASUS_SIZES, **options})))
    for stack in (model.model.encoder, model.model.decoder):
        stack.embed_positions.weight.data = stack.embed_positions.create_weight()  # fixed waves, disturbed too
    return model


def tiny_pegasus_x(**options):
    return disturbed(PegasusXForConditionalGeneration(PegasusXConfig(**{**PEGASUS_SIZES, **LONG, **options})))


def read(kind, **options) -> ModelConfig:
    return pegasus.read_config(kind(**{**PEGASUS_SIZES, **options}).to_dict())


@pytest.mark.parametrize("lengths", [[1], [7, 7], [20, 3, 11]])
def test_pegasus_has_the_same_logits_and_gradients(lengths):
    assert_same_seq2seq(pegasus, tiny_pegasus(), lengths, pad=0)


@pytest.mark.parametrize(
    "lengths",
    [[1], [3, 3], [4], [5, 1], [7], [8, 8], [9, 4], [11], [12, 8], [13, 5, 1], [16, 12], [17], [20, 15], [21, 4, 8]],
)
def test_pegasus_x_has_the_same_logits_and_gradients_around_every_edge(lengths):
    model = assert_same_seq2seq(pegasus, tiny_pegasus_x(), lengths, pad=0)
    assert [layer.attention.pattern.shifted for layer in model.encoder.layers] == [False, True, False]


@pytest.mark.parametrize(
    "options",
    [
        {"stagger_local_blocks": False, "block_size": 5},
        {"scale_embedding": False},
        {"activation_function": "gelu"},
        {"num_global_tokens": 1},
    ],
)
def test_every_option_of_pegasus_is_the_same_model(options):
    assert_same_seq2seq(pegasus, tiny_pegasus_x(**options), [17, 6], pad=0)


def test_a_configuration_of_pegasus_is_read_back_as_it_was():
    config = read(PegasusXConfig, **LONG, activation_dropout=0.25)
    written = pegasus.write_config(config, VOCAB, {"<pad>": 0, "<bos>": 2, "<eos>": 1})
    assert pegasus.read_config(PegasusXConfig(**written).to_dict()) == config
    assert config.encoder.attention == Staggered(8, 3)


def test_only_staggered_encoders_are_written():
    short = read(PegasusConfig)
    assert short.encoder.attention == Full()
    with pytest.raises(FarspanError, match="'full'; PEGASUS-X's is 'staggered'"):
        pegasus.write_config(short, VOCAB, {"<pad>": 0, "<bos>": 2, "<eos>": 1})


def test_stored_tensors_survive_the_way_there_and_back():
    stored = tiny_pegasus_x().state_dict()
    names = pegasus.name_map(read(PegasusXConfig, **LONG))
    there = save_state(names, load_state(names, stored, ignored=pegasus.IGNORED))
    assert all(stored[name].equal(there[name]) for name in there)
    tied = {f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")}
    assert {name for name in stored if name not in there} == {"lm_head.weight", *tied}


def tiny_bigbird(**options):
    sizes = {**PEGASUS_SIZES, "max_position_embeddings": 80, "block_size": 4, "num_random_blocks": 2, **options}
    torch.manual_seed(0)
    return disturbed(BigBirdPegasusForConditionalGeneration(BigBirdPegasusConfig(**sizes)))


@pytest.mark.parametrize(
    ("options", "length"),
    [
        pytest.param(options, length, marks=pytest.mark.slow if options and length not in (36, 61, 80) else ())
        for options in ({}, {"use_bias": True}, {"num_random_blocks": 1}, {"scale_embedding": False})
        for length in (1, 7, 36, 37, 40, 41, 44, 61, 64, 79, 80)
    ],
)
def test_bigbird_pegasus_has_the_same_logits_and_gradients(options, length):
    """At most 36 positions have full attention; then blocks are whole, or the last one is shorter."""
    assert_same_seq2seq(bigbird_pegasus, tiny_bigbird(**options), [length, length], pad=0)


@torch.no_grad()
@pytest.mark.parametrize("lengths", [[80, 36], [61, 60, 1], [52, 37, 44, 5]], ids=str)
def test_padded_rows_are_those_that_the_library_reads_alone(lengths):
    """A new model for each row: a short one turns its attention to full for good."""
    model = ours(bigbird_pegasus, tiny_bigbird())
    (ids, real), (target, _) = text(lengths, pad=0), text([5] * len(lengths), seed=1)
    found = model.logits(model.decode(target, model.encode(ids, real)))
    for row, length in enumerate(lengths):
        alone = {"input_ids": ids[row : row + 1, :length], "decoder_input_ids": target[row : row + 1]}
        torch.testing.assert_close(found[row : row + 1], tiny_bigbird()(**alone).logits, atol=1e-5, rtol=1e-5)


def test_a_short_input_changes_the_library_for_good_and_ours_not():
    theirs = tiny_bigbird()
    model = ours(bigbird_pegasus, theirs)
    (short, _), (long, _), (target, _) = text([9]), text([80]), text([5], seed=1)
    with torch.no_grad():
        before = theirs(input_ids=long, decoder_input_ids=target).logits
        theirs(input_ids=short, decoder_input_ids=target)
        after = theirs(input_ids=long, decoder_input_ids=target).logits
        model.encode(short)
        found = model.logits(model.decode(target, model.encode(long)))
    torch.testing.assert_close(found, before, atol=1e-5, rtol=1e-5)
    assert (after - before).abs().max() > 1e-3


@pytest.mark.parametrize("draw", ["first", "keyed"])
def test_only_the_librarys_own_attention_is_written(draw):
    config = bigbird_pegasus.read_config(tiny_bigbird().config.to_dict())
    pattern = replace(config.encoder.attention, draw=draw)
    config = replace(config, encoder=replace(config.encoder, attention=pattern))
    special, family = {"<pad>": 0, "<bos>": 2, "<eos>": 1}, exportable_family(config)
    if draw == "first":
        assert bigbird_pegasus.read_config(export_config(family, config, VOCAB, special)) == config
    else:
        with pytest.raises(FarspanError, match=r"encoder.attention.draw: farspan 'keyed', Hugging Face 'first'"):
            export_config(family, config, VOCAB, special)


ROWS = {"short": [1], "less than a block": [5, 3], "a block": [8, 8], "several blocks": [40, 31, 9], "padding": [25, 1]}


def model_of(pattern, pooling=Pooling(2, 6, 4, 3)):  # noqa: B008 - frozen
    config = tiny_config(EncoderConfig(layers=3, positions=Learned(40), attention=pattern, pooling=pooling))
    model = tiny_model(replace(config, decoder=DecoderConfig(layers=1, positions=Learned(16))))
    return replace(model, tokenizer=tokenizer_files())


def test_transformers_alone_computes_generates_and_trains_the_same_model(tmp_path):
    models = {tmp_path / "pooled": model_of(Block(8)), tmp_path / "overlap": model_of(Overlap(8), None)}
    for folder, model in models.items():
        write_results(model, folder)
    script = Path(__file__).with_name("bart_ls_alone.py")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(tmp_path / "modules")}
    command = [sys.executable, "-I", script, *models]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]

    for folder, model in ((folder / name, model) for folder, model in models.items() for name in ("out", "saved")):
        (folder / "modeling_bart_ls.py").write_text("raise SystemExit")  # reading runs no file, which may be anything
        again = read_hugging_face(folder)
        assert again.config == model.config
        torch.testing.assert_close(again.state, model.state, rtol=0, atol=0)


def write_results(model, folder: Path) -> None:
    """The exported model, and what ours makes of the rows."""
    write_hugging_face(model, folder / "out")
    results, ours = {}, loaded(model)
    for name, lengths in ROWS.items():
        (ids, real), (target, _) = text(lengths, high=23), text([5] * len(lengths), seed=1, high=23)
        with torch.no_grad():
            logits = ours.logits(ours.decode(target, ours.encode(ids, None if real.all() else real)))
        parts = {"ids": ids, "mask": real.long(), "target": target, "logits": logits}
        results |= {f"{name}.{part}": tensor for part, tensor in parts.items()}
    save_file(results, folder / "results")


def test_the_card_names_the_file_and_advises_a_revision(tmp_path):
    write_hugging_face(model_of(Block(8)), tmp_path / "out")
    code = (tmp_path / "out/modeling_bart_ls.py").read_bytes()
    assert code == Path(modeling_bart_ls.__file__).read_bytes()
    card = (tmp_path / "out/README.md").read_text()
    assert sha256(code).hexdigest() in card
    assert "trust_remote_code=True" in card
    assert "revision=" in card
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert {name.partition(".")[0] for name in config["auto_map"].values()} == {"modeling_bart_ls"}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (model_of(BlockGlobal(8, 2)), "attention pattern 'block_global'"),
        (model_of(Block(8), Pooling(reference_padding=True, layers=1)), "reference_padding"),
    ],
)
def test_what_the_file_cannot_compute_is_refused(model, message, tmp_path):
    with pytest.raises(FarspanError, match=message):
        write_hugging_face(model, tmp_path / "out")
    assert not list(tmp_path.iterdir())
