"""Tests of model folders: ours and Hugging Face's."""

import json
from dataclasses import replace
from hashlib import sha256

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, BartConfig, BartForConditionalGeneration

from corpora.errors import FarspanError
from corpora.tokenizers.load import load_tokenizer
from tests.trainer.conversion.families.test_bart import SIZES
from tests.trainer.conversion.models import disturbed, loaded, text, tiny_model, tokenizer_files, vocabulary
from trainer.conversion.hugging_face import read_hugging_face, write_hugging_face
from trainer.conversion.model_folder import is_model_folder, read_model_folder, weights_sha256, write_model_folder

MODEL = replace(
    tiny_model(known=replace(vocabulary("<mask>"), frame=("<eos>",))),
    tokenizer=tokenizer_files(),
    generation={"num_beams": 4},
)


@pytest.fixture
def folder(tmp_path):
    write_model_folder(MODEL, tmp_path / "model")
    return tmp_path / "model"


def test_what_is_written_is_read_back(folder):
    again = read_model_folder(folder)
    assert is_model_folder(folder)
    assert replace(again, state={}) == replace(MODEL, state={})
    torch.testing.assert_close(again.state, MODEL.state, rtol=0, atol=0)
    assert len(weights_sha256(folder)) == 64


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer/tokenizer.json"])
def test_a_changed_file_is_damage(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[-3] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(FarspanError, match=r"is damaged \(.* has another sha256"):
        read_model_folder(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "version 2"),
        ({"format": "farspan.masks"}, "farspan.masks"),
        ({"more": 1}, "has the keys"),
        ({"config": {"width": 16}}, "config"),
        ({"vocabulary": {"size": 3}}, "vocabulary lacks"),
        ({"files": {}}, "decoder.embedded.norm.bias: none, not .16,.; .* and 47 more"),
        ({"files": {"../secret": {"bytes": 1, "sha256": ""}}}, "a key of files is"),
    ],
)
def test_a_wrong_manifest_is_refused(folder, change, message):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(FarspanError, match=message):
        read_model_folder(folder)


def test_weights_of_another_model_are_listed(folder):
    state = load_file(folder / "model.safetensors")
    state["tokens.weight"] = state["tokens.weight"][:3].clone()
    state["stray"] = torch.zeros(2)
    save_file(state, folder / "model.safetensors")
    data = (folder / "model.safetensors").read_bytes()
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["model.safetensors"] = {"bytes": len(data), "sha256": sha256(data).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FarspanError) as raised:
        read_model_folder(folder)
    assert "stray: (2,), not none" in str(raised.value)
    assert "tokens.weight: (3, 16), not (24, 16)" in str(raised.value)


def test_a_folder_of_anything_else_is_no_model_folder(tmp_path):
    assert not is_model_folder(tmp_path)
    with pytest.raises(FarspanError, match="is not a model folder"):
        read_model_folder(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "farspan.corpus", "format_version": 1}')
    with pytest.raises(FarspanError, match=r"has format 'farspan.corpus', not 'farspan.model'; `farspan convert`"):
        read_model_folder(tmp_path)


@pytest.fixture
def bart(tmp_path):
    theirs = disturbed(BartForConditionalGeneration(BartConfig(**SIZES)))
    theirs.save_pretrained(tmp_path / "bart")
    for name, content in tokenizer_files().items():
        (tmp_path / "bart" / name).write_bytes(content)
    return theirs, tmp_path / "bart"


def test_a_folder_is_read_with_its_tokenizer(bart):
    theirs, folder = bart
    model = read_hugging_face(folder)
    ours, (ids, real), (target, _) = loaded(model), text([9, 4]), text([5, 5], seed=1)
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=real.long(), decoder_input_ids=target).logits
        found = ours.logits(ours.decode(target, ours.encode(ids, real)))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert model.vocabulary.special.ids == {"<pad>": 1, "<bos>": 0, "<eos>": 2}
    assert (model.vocabulary.size, model.vocabulary.tokenizer_size) == (37, 23)
    assert model.vocabulary.tokenizer_fingerprint == load_tokenizer(str(folder)).fingerprint
    assert model.vocabulary.decoder_start == "<eos>"
    assert model.tokenizer == tokenizer_files()


def test_shards_and_older_files_are_read(bart, tmp_path):
    theirs, folder = bart
    expected = read_hugging_face(folder).state
    theirs.save_pretrained(tmp_path / "sharded", max_shard_size="4KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    (folder / "model.safetensors").unlink()
    # as the first BART was saved: without its head, tied copies written out
    torch.save(theirs.model.state_dict(), folder / "pytorch_model.bin")
    for found in (read_hugging_face(tmp_path / "sharded").state, read_hugging_face(folder).state):
        assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", b"nonsense", "damaged or holds more than tensors"),
        ("config.json", b"{}", "config.json cannot be read"),
        ("config.json", b'{"model_type": "gpt2"}', "model_type is 'gpt2'; known are bart"),
        ("config.json", b'{"model_type": ["bart"]}', r"model_type is \['bart'\]; known are bart"),
        ("config.json", {"d_model": "x"}, "does not describe a bart"),
        ("config.json", {"encoder_layers": 1}, "unexpected: model"),
        ("config.json", {"vocab_size": 9}, "tokenizer beside it"),
        ("config.json", {"dropout": None}, "dropout is null"),
    ],
)
def test_a_damaged_folder_is_refused(bart, name, content, message):
    _, folder = bart
    if isinstance(content, dict):
        content = json.dumps({"model_type": "bart", **SIZES, **content}).encode()
    (folder / name).write_bytes(content)
    with pytest.raises(FarspanError, match=message) as raised:
        read_hugging_face(folder)
    assert str(raised.value).count(str(folder)) == 1


class Stranger:
    """No tensor: it is not unpickled."""


OBJECTS = [{"model.shared.weight": 3}, {"model.shared.weight": Stranger()}, [torch.ones(2)]]


@pytest.mark.parametrize("content", [b"nonsense", b"", b"\x80\x02.", *OBJECTS])
def test_older_files_of_anything_else_are_refused(bart, content):
    _, folder = bart
    (folder / "model.safetensors").unlink()
    if isinstance(content, bytes):
        (folder / "pytorch_model.bin").write_bytes(content)
    else:
        torch.save(content, folder / "pytorch_model.bin")
    with pytest.raises(FarspanError, match=r"pytorch_model.bin (is damaged or holds more|holds other things) than"):
        read_hugging_face(folder)


def test_an_index_cannot_name_a_file_elsewhere(bart):
    _, folder = bart
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    for stranger in ('"../model.safetensors"', "3", "null"):
        (folder / "model.safetensors.index.json").write_text(f'{{"weight_map": {{"x": {stranger}}}}}')
        with pytest.raises(FarspanError, match="not in the folder"):
            read_hugging_face(folder)


def test_an_exported_tokenizer_knows_the_tokens_that_the_model_knows_besides(tmp_path):
    model = replace(tiny_model(known=vocabulary("<mask>", sentinels=2)), tokenizer=tokenizer_files())
    write_hugging_face(model, tmp_path / "bart")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "bart")
    assert tokenizer.convert_tokens_to_ids(["w0", "<mask>", "<sentinel-1>"]) == [3, 23, 25]
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 0, 2)
    fingerprint = load_tokenizer(str(tmp_path / "bart")).fingerprint
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_files()["tokenizer.json"])
    assert load_tokenizer(str(tmp_path / "tokenizer.json")).fingerprint == fingerprint


def test_an_exported_model_is_read_back_as_it_was(tmp_path):
    model = replace(tiny_model(), tokenizer=tokenizer_files())
    write_hugging_face(model, tmp_path / "bart")
    again = read_hugging_face(tmp_path / "bart")
    assert (again.config, again.vocabulary.special) == (model.config, model.vocabulary.special)
    torch.testing.assert_close(again.state, model.state, rtol=0, atol=0)
