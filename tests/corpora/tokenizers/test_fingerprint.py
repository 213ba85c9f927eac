"""The fingerprint of a tokenizer.json."""

from __future__ import annotations

import hashlib
import json

from corpora.tokenizers.fingerprint import _without_offsets, fingerprint_of


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
