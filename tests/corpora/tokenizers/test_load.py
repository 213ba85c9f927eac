"""Loading of tokenizers, and the formats of their files."""

from __future__ import annotations

import hashlib
import json

import pytest

from corpora.errors import FarspanError
from corpora.tokenizers.load import load_tokenizer, load_tokenizer_of
from corpora.tokenizers.tokenizer_json import _without_offsets, fingerprint_of, load, parse


def test_wrong_files(tmp_path):
    for name, data in {"a.json": b"{", "b.json": b"{}", "c.model": b"\x80\x04K\x01.", "d.model": b""}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FarspanError, match=name):
            load_tokenizer(tmp_path / name)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FarspanError, match=r"0 \.model files"):
        load_tokenizer(str(tmp_path / "empty"))
    with pytest.raises(FarspanError, match="no such file"):
        load_tokenizer(str(tmp_path / "nowhere.json"))


def test_hub_name_out_of_reach(monkeypatch):
    import transformers

    def refuse(*_, **__):
        raise OSError("We couldn't connect\nto the hub")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", refuse)
    with pytest.raises(FarspanError, match=r"facebook/bart-base.*couldn't connect.*local"):
        load_tokenizer("facebook/bart-base")


def test_folder_with_a_configuration_only(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(FarspanError, match=r"the folder holds no tokenizer\.json, .* copy the model's tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_folder_without_json_goes_through_transformers(byte_level, tmp_path):
    model = json.loads(byte_level.serialized()["tokenizer.json"])["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tmp_path / "merges.txt").write_text("\n".join(" ".join(pair) for pair in model["merges"]))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BartTokenizer"}')
    loaded = load_tokenizer(str(tmp_path))
    assert loaded.engine == "gigatoken"
    assert loaded.owned_tokens["<eos>"] == 2
    assert loaded.encode(["the river's"]).values.tolist() == byte_level.encode(["the river's"]).values.tolist()


def test_an_artefact_without_tokenizer_never_asks_the_hub(tmp_path):
    with pytest.raises(FarspanError, match="has no folder `tokenizer`"):
        load_tokenizer_of(str(tmp_path))


def test_equal_contents_are_loaded_once(tmp_path, byte_level):
    for name in ("a", "b"):
        byte_level.save(str(tmp_path / name))
    assert load_tokenizer(str(tmp_path / "a")) is load_tokenizer(str(tmp_path / "b"))
    tokens = json.loads((tmp_path / "b" / "special_tokens_map.json").read_bytes())
    (tmp_path / "b" / "special_tokens_map.json").write_text(json.dumps(tokens | {"eos_token": "<pad>"}))
    assert load_tokenizer(str(tmp_path / "a")) is not load_tokenizer(str(tmp_path / "b"))


def model(prefix: str, merges: list) -> bytes:
    vocab = {piece: number for number, piece in enumerate(["a", "b", "##b", "ab"])}
    made = {"type": "BPE", "vocab": vocab, "merges": merges, "continuing_subword_prefix": prefix}
    return json.dumps({"model": made}).encode()


@pytest.mark.parametrize("merges", [[["a", "##b"]], ["a ##b"], []])
def test_a_prefix_of_all_merges_is_kept(merges):
    tokenizer, _, _ = load({**parse(model("##", merges)), "added_tokens": []})
    assert tokenizer.encode("ab").tokens == (["ab"] if merges else ["a", "##b"])


@pytest.mark.parametrize("merge", [["a", "b"], "a b", ["a"], [], None, 7])
def test_a_merge_without_the_prefix_is_refused(merge):
    """The library would end the process."""
    with pytest.raises(FarspanError, match=r"merge .* has no continuing_subword_prefix '##'; restore the file$"):
        parse(model("##", [["a", "##b"], merge]))


def test_fingerprint_is_the_sha256_of_sorted_json(byte_level, word_piece, metaspace):
    for tokenizer in (byte_level, word_piece, metaspace):
        config = tokenizer._config
        model = {key: value for key, value in config["model"].items() if value not in (None, False)}
        parts = {"model": model, "added_tokens": [], "normalizer": config["normalizer"]}
        parts["pre_tokenizer"] = _without_offsets(config["pre_tokenizer"])
        assert (
            tokenizer.fingerprint
            == fingerprint_of(config)
            == hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        )
