"""Text that spells special tokens is text, for every kind of model."""

import json

import numpy as np
import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers

from corpora.tokenizers.huggingface import HuggingFaceTokenizer
from corpora.tokenizers.load import load_tokenizer
from corpora.tokenizers.protocol import special_ids
from corpora.tokenizers.sentencepiece import SentencePieceTokenizer
from tests.corpora.tokenizers.conftest import sample_texts, sentence_piece_model

NAMES = ["<pad>", "</s>", "<unk>", "<s>", "<mask>", "[MASK]", "<extra_id_0>", "<|endoftext|>"]
LETTERS = sorted(set("".join(NAMES) + "abc x0A41"))
WORDS = ["ab", "<e", "x_", "/s", "mask", "[M", "ASK]", "end", "of", "text|>"]
some = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

# names, whole, doubled, cut, spelt in other widths or cases, between letters of the vocabulary
parts = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from([*NAMES, *WORDS, "<0x41>", "<0x0A>", "＜/s＞", "<MASK>", " "]).flatmap(
        lambda name: st.integers(0, len(name)).map(lambda cut: name[cut:])
    ),
    st.text(st.sampled_from(LETTERS), max_size=5),
)
texts = st.lists(parts, max_size=8).map("".join)


def special_tokens(names=NAMES):
    return [tokenizers.AddedToken(name, special=True, normalized=False) for name in names]


def finished(model, names=NAMES, **components):
    made = tokenizers.Tokenizer(model)
    for name, component in components.items():
        setattr(made, name, component)
    made.add_special_tokens(special_tokens(names))
    return made.to_str().encode()


def unigram(byte_fallback=False):
    """As T5's file: the special tokens are pieces with the best score of all."""
    pieces = [(name, 0.0) for name in NAMES]
    if byte_fallback:
        pieces += [(f"<0x{byte:02X}>", 0.0) for byte in range(256)]
    letters = [*LETTERS, "▁"]
    pieces += [(letter, -8.0 - i / 100) for i, letter in enumerate(letters)] + [(word, -5.0) for word in WORDS]
    return finished(
        models.Unigram(pieces, unk_id=2, byte_fallback=byte_fallback),
        pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="never"),
        decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
    )


def merges_of(names, vocab):
    """Merges that build every name from left to right, whose pieces are added to the vocabulary."""
    for name in names:
        for cut in range(2, len(name) + 1):
            vocab.setdefault(name[:cut], len(vocab))
    return list(dict.fromkeys((name[: cut - 1], name[cut - 1]) for name in names for cut in range(2, len(name) + 1)))


def merged(ignore_merges=False):
    """Characters, bytes, and merges that build every name from left to right, bytes among them."""
    vocab = {name: number for number, name in enumerate(NAMES)}
    for piece in [f"<0x{byte:02X}>" for byte in range(256)] + [letter for letter in LETTERS if letter != " "] + ["▁"]:
        vocab.setdefault(piece, len(vocab))
    merges = merges_of([*NAMES, "<0x41>", *WORDS], vocab)
    return finished(
        models.BPE(vocab, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>", ignore_merges=ignore_merges),
        normalizer=normalizers.Replace(" ", "▁"),
        decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
    )


def byte_level(ignore_merges=False):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {name: number for number, name in enumerate([*NAMES, *alphabet])}
    return finished(
        models.BPE(vocab, merges_of(NAMES, vocab), ignore_merges=ignore_merges),
        pre_tokenizer=pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        if ignore_merges
        else pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        decoder=decoders.ByteLevel(),
    )


def words(kind):
    names = {name: number for number, name in enumerate(NAMES)}
    vocab = names | {word: len(NAMES) + number for number, word in enumerate([*LETTERS, *WORDS])}
    if kind is models.WordPiece:
        vocab |= {f"##{letter}": len(vocab) + number for number, letter in enumerate(LETTERS)}
    return finished(
        kind(vocab, unk_token="<unk>"),
        pre_tokenizer=pre_tokenizers.WhitespaceSplit(),
        decoder=decoders.WordPiece(cleanup=False),
    )


JSON = {
    "unigram": unigram(),
    "unigram with bytes": unigram(byte_fallback=True),
    "merges": merged(),
    "merges or whole words": merged(ignore_merges=True),
    "byte level": byte_level(),
    "byte level or whole words": byte_level(ignore_merges=True),
    "word pieces": words(models.WordPiece),
    "whole words": words(models.WordLevel),
}
LOSSLESS = {"unigram with bytes", "merges", "merges or whole words", "byte level"}


@pytest.fixture(scope="module", params=JSON)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(kind):
    return HuggingFaceTokenizer(JSON[kind])


@pytest.fixture(scope="module", params=["unigram", "bpe", "char", "word"])
def sentence_piece_kind(request):
    model = sentence_piece_model(
        [*sample_texts(), "".join(LETTERS), *NAMES, *WORDS],
        model_type=request.param,
        vocab_size=420,
        hard_vocab_limit=False,
        byte_fallback=request.param in ("unigram", "bpe"),
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        add_dummy_prefix=request.param != "word",  # so that words are looked up as they stand
        control_symbols=NAMES[4:],
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=3,
    )
    return request.param, SentencePieceTokenizer(model)


@given(batch=st.lists(texts, min_size=1, max_size=4))
@some
def test_no_text_yields_a_special_id(tokenizer, kind, batch):
    special = special_ids(tokenizer.owned_tokens)
    assert len(special) == len(NAMES) - 1
    ids, starts = tokenizer.encode_with_starts(batch)
    assert not np.isin(ids.values, special).any()
    assert [row.tolist() for row in ids] == [tokenizer.encode([text])[0].tolist() for text in batch]
    assert [row.tolist() for row in starts] == [tokenizer.encode_with_starts([text])[1][0].tolist() for text in batch]
    if kind in LOSSLESS:
        assert [tokenizer.decode(row) for row in ids] == batch
    if kind == "unigram":  # which has these letters alone
        known = ["".join(letter for letter in text if letter in LETTERS) for text in batch]
        assert [tokenizer.decode(row) for row in tokenizer.encode(known)] == known


@given(text=texts)
@some
def test_other_texts_keep_their_ids(tokenizer, kind, text):
    """The ids are the library's where no piece is taken for the token that it spells."""
    library = tokenizers.Tokenizer.from_str(JSON[kind].decode())
    library.encode_special_tokens = True
    if not any(name in text for name in [*NAMES, "<0x"]):
        assert tokenizer.encode([text])[0].tolist() == library.encode(text, add_special_tokens=False).ids


@given(batch=st.lists(texts, min_size=1, max_size=4))
@some
def test_no_text_yields_a_control_symbol(sentence_piece_kind, batch):
    kind, tokenizer = sentence_piece_kind
    special = special_ids(tokenizer.owned_tokens)
    assert len(special) == len(NAMES) - 1
    ids = tokenizer.encode(batch)
    assert not np.isin(ids.values, special).any()
    if kind in ("unigram", "bpe"):
        assert [tokenizer.decode(row) for row in ids] == batch


def test_a_hugging_face_folder(tmp_path):
    from transformers import PreTrainedTokenizerFast

    roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}
    inner = tokenizers.Tokenizer.from_str(JSON["unigram"].decode())
    PreTrainedTokenizerFast(tokenizer_object=inner, **roles).save_pretrained(tmp_path)
    loaded = load_tokenizer(str(tmp_path))
    assert loaded.owned_tokens["<mask>"] == NAMES.index("<mask>")
    text = "".join(NAMES)
    assert loaded.decode(loaded.encode([text])[0]) == text
    assert not np.isin(loaded.encode([text])[0], special_ids(loaded.owned_tokens)).any()


def test_a_declared_role_is_out_of_reach_where_the_file_calls_it_ordinary(tmp_path):
    config = json.loads(JSON["byte level"])
    for token in config["added_tokens"]:
        token["special"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>", "mask_token": {"content": "<mask>"}}')
    loaded = load_tokenizer(str(tmp_path))
    assert loaded.owned_tokens == {"<eos>": 1, "<mask>": 4}
    ids = loaded.encode(["a</s>b<mask><pad>"])[0].tolist()
    assert not {1, 4} & set(ids)
    assert ids[-1] == 0  # an added token that nothing calls special is a piece of text
    assert loaded.decode(ids) == "a</s>b<mask><pad>"


def test_a_character_is_text_whatever_a_configuration_calls_it():
    """As CLIP's padding, ``!``: no text with an exclamation mark could be written without it."""
    data = finished(models.Unigram([("<unk>", 0.0), ("!", -1.0), ("a", -1.0)], unk_id=0), ["!", "<unk>"])
    loaded = HuggingFaceTokenizer(data, {"pad_token": "!", "unk_token": "<unk>"})
    assert loaded.owned_tokens == {"<unk>": 0}
    assert loaded.encode(["a!"])[0].tolist() == [2, 1]
