"""A tokenizer.json that contradicts itself is refused before the library sees it."""

from __future__ import annotations

import hashlib
import json

import pytest

from corpora.errors import FarspanError
from corpora.tokenizers.tokenizer_json import _without_offsets, fingerprint_of, load, parse


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
