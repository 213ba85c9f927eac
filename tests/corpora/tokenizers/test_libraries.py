"""Hugging Face tokenizers and SentencePiece models against their libraries: starts, special tokens, fingerprints."""

import json

import numpy as np
import pytest
import sentencepiece
from hypothesis import given

from corpora.errors import FarspanError
from corpora.tokenizers import sentencepiece as our_sentencepiece
from corpora.tokenizers.huggingface import HuggingFaceTokenizer
from corpora.tokenizers.load import load_tokenizer
from corpora.tokenizers.sentencepiece import SentencePieceTokenizer
from objectives.api.special_tokens import SpecialTokens
from tests.corpora.tokenizers.conftest import sample_texts, sentence_piece_model
from tests.corpora.tokenizers.test_tokenizers import some, texts


@given(text=texts)
@some
def test_byte_level_starts_cut_the_text_into_its_tokens(byte_level, text):
    ids, starts = byte_level.encode_with_starts([text])
    data = text.encode()
    ends = np.append(starts[0], len(data))[1:]
    pieces = [data[a:b] for a, b in zip(starts[0], ends, strict=True)]
    assert [piece.decode(errors="replace") for piece in pieces] == [byte_level.decode([i]) for i in ids[0]]


def test_cut_characters_become_replacements(byte_level):
    bytes_of_earth = [byte_level.encode(["\U0001f30d"])[0][i] for i in range(4)]
    text, starts = byte_level.decode_with_offsets([*bytes_of_earth[1:], *bytes_of_earth, *bytes_of_earth[:2]])
    assert text == "\ufffd\ufffd\ufffd\U0001f30d\ufffd"
    assert starts.tolist() == [0, 1, 2, 3, 3, 3, 3, 4, 4]


def test_owned_tokens(byte_level, sentence_pieces, word_piece, metaspace):
    assert byte_level.owned_tokens == {"<bos>": 0, "<pad>": 1, "<eos>": 2, "<unk>": 3}
    assert sentence_pieces.owned_tokens == {"<pad>": 0, "<eos>": 1, "<unk>": 2, "<bos>": 3}
    assert word_piece.owned_tokens == {"<pad>": 0, "<unk>": 1, "<bos>": 2, "<eos>": 3, "<mask>": 4}
    assert metaspace.owned_tokens == {"<pad>": 0, "<eos>": 1, "<unk>": 2}


def test_folder_configuration_names_the_roles(byte_level, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(json.loads(byte_level.serialized()["tokenizer.json"])))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<pad>"}, "bos_token": null}')
    # What the configuration gives no role keeps its own name.
    assert load_tokenizer(str(tmp_path)).owned_tokens == {"<eos>": 1, "<s>": 0, "</s>": 2, "<unk>": 3}


def with_token(tokenizer, content, special=True, piece=False):
    """The same tokenizer with one more token: added, or only a piece of the vocabulary."""
    config = json.loads(tokenizer.serialized()["tokenizer.json"])
    if piece:
        config["model"]["vocab"][content] = tokenizer.vocab_size
    else:
        token = {"id": tokenizer.vocab_size, "content": content, "special": special}
        config["added_tokens"].append(config["added_tokens"][0] | token)
    return json.dumps(config)


@pytest.mark.parametrize("name", ["<mask>", "[MASK]"])
def test_the_mask_of_a_vocabulary_is_used(byte_level, name, tmp_path):
    number = byte_level.vocab_size
    own = HuggingFaceTokenizer(with_token(byte_level, name).encode())
    assert own.owned_tokens == {**byte_level.owned_tokens, "<mask>": number}
    assert own.fingerprint == byte_level.fingerprint
    assert number not in own.encode([f"a {name} b"])[0]
    # Whatever it is called, where a file beside it says so; and it stays so once saved.
    (tmp_path / "tokenizer.json").write_text(with_token(byte_level, "@@hole"))
    (tmp_path / "tokenizer_config.json").write_text('{"mask_token": {"content": "@@hole"}, "eos_token": "</s>"}')
    declared = load_tokenizer(str(tmp_path))
    assert declared.owned_tokens["<mask>"] == number
    declared.save(str(tmp_path / "saved"))
    assert load_tokenizer(str(tmp_path / "saved")).owned_tokens == declared.owned_tokens


@pytest.mark.parametrize("name", ["<mask>", "<doc-sep>", "<sent-mask>"])
def test_a_special_token_keeps_its_text_and_a_piece_is_text(byte_level, name):
    number = byte_level.vocab_size
    special = HuggingFaceTokenizer(with_token(byte_level, name).encode())
    assert special.owned_tokens == {**byte_level.owned_tokens, name: number}
    assert SpecialTokens.append(special.vocab_size, special.owned_tokens, [name])[name] == number
    for data in (with_token(byte_level, name, special=False), with_token(byte_level, name, piece=True)):
        text = HuggingFaceTokenizer(data.encode())
        assert text.owned_tokens == byte_level.owned_tokens
        assert SpecialTokens.append(text.vocab_size, text.owned_tokens, [name])[name] == number + 1
    # Text yields an added token that is not special, so this one changes text -> id.
    matched = HuggingFaceTokenizer(with_token(byte_level, name, special=False).encode())
    assert number in matched.encode([f"a {name} b"])[0]
    assert matched.fingerprint != byte_level.fingerprint


def test_vocab_size_is_the_largest_id_and_one(byte_level):
    config = json.loads(byte_level.serialized()["tokenizer.json"])
    config["model"]["vocab"]["hole before me"] = 900
    assert HuggingFaceTokenizer(json.dumps(config).encode()).vocab_size == 901
    config = json.loads(byte_level.serialized()["tokenizer.json"])
    mask = config["added_tokens"][0] | {"id": byte_level.vocab_size, "content": "<mask>"}
    wider = HuggingFaceTokenizer(json.dumps(config | {"added_tokens": [*config["added_tokens"], mask]}).encode())
    assert wider.vocab_size == byte_level.vocab_size + 1
    assert wider.fingerprint == byte_level.fingerprint
    assert wider.decode([byte_level.vocab_size]) == "<mask>"


def changed(tokenizer, **parts):
    config = json.loads(tokenizer.serialized()["tokenizer.json"])
    return HuggingFaceTokenizer(json.dumps(config | parts).encode())


def test_fingerprint_is_of_text_to_id_alone(byte_level, sentence_pieces, metaspace):
    padding = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 1}
    padding |= {"pad_type_id": 0, "pad_token": "<pad>"}
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    same = changed(byte_level, padding=padding, truncation=truncation)
    assert same.fingerprint == byte_level.fingerprint
    assert same.encode(["the river runs"]).values.tolist() == byte_level.encode(["the river runs"]).values.tolist()
    model = json.loads(byte_level.serialized()["tokenizer.json"])["model"]
    model["merges"] = model["merges"][:-1]
    others = [changed(byte_level, model=model), changed(byte_level, normalizer={"type": "NFC"}), metaspace]
    assert len({other.fingerprint for other in [*others, byte_level, sentence_pieces]}) == 5


def test_unusable_json(byte_level):
    model = json.loads(byte_level.serialized()["tokenizer.json"])["model"]
    for parts, message in (
        ({"decoder": {"type": "BPEDecoder", "suffix": "</w>"}}, "'BPEDecoder'"),
        ({"model": {"type": "Nothing"}}, "cannot read"),
        ({"model": model | {"dropout": 0.1}}, "dropout"),
    ):
        with pytest.raises(FarspanError, match=message):
            changed(byte_level, **parts)


def test_a_text_without_token_is_an_error(metaspace):
    model = json.loads(metaspace.serialized()["tokenizer.json"])["model"]
    tokenizer = changed(metaspace, model=model | {"unk_id": None})
    assert tokenizer.encode(["the river"]).values.tolist() == metaspace.encode(["the river"]).values.tolist()
    for encode in (tokenizer.encode, tokenizer.encode_with_starts):
        with pytest.raises(FarspanError, match=r"tokenizer.json: it cannot encode every text: .*unk.*; give its model"):
            encode(["the \u2603"])


def test_starts_of_merges_in_another_order(byte_level):
    """A token that starts inside a character starts at its own byte."""
    config = json.loads(byte_level.serialized()["tokenizer.json"])
    config["model"]["merges"].reverse()
    tokenizer = HuggingFaceTokenizer(json.dumps(config).encode())
    text = "the \U0001f30d river"
    ids, starts = tokenizer.encode_with_starts([text])
    assert ids[0].tolist() == tokenizer._tokenizer.encode(text, add_special_tokens=False).ids
    data = text.encode()
    ends = np.append(starts[0], len(data))[1:]
    assert [data[a:b] for a, b in zip(starts[0], ends, strict=True)] == [tokenizer._token_bytes[i] for i in ids[0]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32-le"])
@pytest.mark.parametrize("indent", [None, 2])
def test_the_layout_and_encoding_of_the_json_do_not_matter(byte_level, encoding, indent):
    config = json.loads(byte_level._data)
    text = json.dumps({**config, "padding": None}, indent=indent, ensure_ascii=encoding == "utf-8")
    loaded = HuggingFaceTokenizer(text.encode(encoding))
    assert loaded.fingerprint == byte_level.fingerprint
    assert loaded.encode(["Größe 12."])[0].tolist() == byte_level.encode(["Größe 12."])[0].tolist()


def test_surrogates_in_the_json_are_refused(byte_level):
    config = json.loads(byte_level._data)
    config["model"]["vocab"]["\ud800"] = 10_000
    for data in (json.dumps(config).encode(), json.dumps(config, ensure_ascii=False).encode(errors="surrogatepass")):
        with pytest.raises(FarspanError, match=r"tokenizer\.json: "):
            HuggingFaceTokenizer(data)


@given(text=texts)
@some
def test_sentencepiece_starts_are_its_own_offsets(sentence_pieces, text):
    processor = sentencepiece.SentencePieceProcessor(model_proto=sentence_pieces.serialized()["tokenizer.model"])
    # the library takes U+2581 for a space, so another character of three bytes
    offsets = processor.EncodeAsOffsetMapping(text.replace("\u2581", "\ufdef"), return_bytes=True)["offsets"]
    assert sentence_pieces.encode_with_starts([text])[1][0].tolist() == [start for start, _ in offsets]


@pytest.mark.parametrize("rule", ["identity", "nmt_nfkc"])
def test_sentencepiece_starts_of_long_texts(rule, monkeypatch):
    """A long text goes through the normaliser in slices; the starts must not show it."""
    monkeypatch.setattr(our_sentencepiece, "_SLICE", 40)
    model = sentence_piece_model(normalization_rule_name=rule, remove_extra_whitespaces=rule != "identity")
    tokenizer = SentencePieceTokenizer(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    text = "  " + "  \n ".join([*sample_texts(10), "ﬁ ① e\u0301  a\u3000 b", "世" * 60]) + "  "
    offsets = processor.EncodeAsOffsetMapping(text, return_bytes=True)["offsets"]
    assert tokenizer.encode_with_starts([text])[1][0].tolist() == [start for start, _ in offsets]
    assert len(tokenizer._origins(text.encode())) == len(processor.Normalize(text.encode()))


def test_sentencepiece_controls_are_special_and_user_symbols_are_text():
    controls, symbols = ["[MASK]", "<doc-sep>"], ["<doc-s>", "<mask>"]
    model = sentence_piece_model(control_symbols=controls, user_defined_symbols=symbols)
    tokenizer = SentencePieceTokenizer(model)
    piece = sentencepiece.SentencePieceProcessor(model_proto=model).PieceToId
    roles = {"<unk>": piece("<unk>"), "<bos>": piece("<s>"), "<eos>": piece("</s>"), "<mask>": piece("[MASK]")}
    assert tokenizer.owned_tokens == {**roles, "<doc-sep>": piece("<doc-sep>")}
    ids = tokenizer.encode(["a <doc-s> b <mask> c <doc-sep> d [MASK] e </s>"])[0].tolist()
    assert {piece("<doc-s>"), piece("<mask>")} <= set(ids)
    assert not set(tokenizer.owned_tokens.values()) & set(ids)
    special = SpecialTokens.append(tokenizer.vocab_size, tokenizer.owned_tokens, ["<doc-sep>", "<doc-s>", "<mask>"])
    assert (special["<doc-sep>"], special["<mask>"]) == (piece("<doc-sep>"), piece("[MASK]"))
    assert special["<doc-s>"] >= tokenizer.vocab_size


def test_sentencepiece_fingerprint_ignores_training_options(sentence_pieces):
    data = sentence_pieces.serialized()["tokenizer.model"]
    note = b"/some/where/else.txt"
    same = SentencePieceTokenizer(data + b"\x12" + bytes([len(note) + 2]) + b"\x0a" + bytes([len(note)]) + note)
    assert same.fingerprint == sentence_pieces.fingerprint
    rule = b"\x1a\x02\x18\x00"  # normalizer_spec { add_dummy_prefix: false }
    assert SentencePieceTokenizer(data + rule).fingerprint != sentence_pieces.fingerprint
