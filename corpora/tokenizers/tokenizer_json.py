"""Reading of a tokenizer.json, with refusals of damaged ones, and its fingerprint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import tokenizers

from corpora.errors import FarspanError, one_line

_MOST_GAPS = 100  # maximum ids per token; with a damaged file's, tables by id would not fit into memory


def parse(data: bytes) -> dict[str, Any]:
    """Parse a tokenizer.json."""
    try:
        config = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FarspanError(
            f"tokenizer.json: not JSON ({error}); give a file written by the tokenizers library"
        ) from None
    if not isinstance(config, dict) or not isinstance(config.get("model"), dict):
        raise FarspanError('tokenizer.json: no "model"; give a file written by the tokenizers library')
    _check_prefixes(config["model"])
    return config


def decode(data: bytes) -> str:
    """Decode a tokenizer.json that ``parse`` accepts, as ``json.loads`` does."""
    return data.decode(json.detect_encoding(data), "surrogatepass")


def load(
    config: dict[str, Any], text: str | None = None
) -> tuple[tokenizers.Tokenizer, dict[str, int], dict[str, Any]]:
    """Load with the tokenizers library, so that the spelling of a special token in a document is encoded as text.

    Returns the tokenizer, its vocabulary, and ``config`` as this version of the library writes it, with all defaults.
    """
    source = json.dumps(config, ensure_ascii=False, separators=(",", ":")) if text is None else text
    try:
        loaded = tokenizers.Tokenizer.from_str(source)
    except Exception as error:  # the library raises bare Exception
        raise FarspanError(f"tokenizer.json: the tokenizers library cannot read it: {one_line(error)}") from error
    vocab = loaded.get_vocab(with_added_tokens=True)
    if (largest := max(vocab.values(), default=-1)) > _MOST_GAPS * (len(vocab) + 1000):
        raise FarspanError(f"tokenizer.json: {len(vocab):,} tokens with ids up to {largest:,}; restore the file")
    loaded.encode_special_tokens = True
    written = loaded.to_str()
    return loaded, vocab, config if written == source else json.loads(written)


def _check_prefixes(model: Mapping[str, Any]) -> None:
    """Refuse merges without the prefix of their model, at which the tokenizers library may abort the process."""
    prefix, merges = model.get("continuing_subword_prefix"), model.get("merges")
    if not prefix or not isinstance(prefix, str) or not isinstance(merges, list):
        return
    for merge in merges:
        pair = merge.split(" ", 1) if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not str(pair[1]).startswith(prefix):
            raise FarspanError(
                f"tokenizer.json: merge {merge!r:.80} has no continuing_subword_prefix {prefix!r:.20}; restore the file"
            )


def fingerprint_of(config: Mapping[str, Any]) -> str:
    """Hash the parts of a tokenizer.json that affect text -> id, independent of the library version that wrote it."""
    model = {key: value for key, value in config["model"].items() if value not in (None, False)}
    added = config["added_tokens"]
    if all(token["special"] for token in added):
        added = []  # special tokens are never matched in text
    parts = {"model": model, "added_tokens": added}
    parts |= {name: _without_offsets(config[name]) for name in ("normalizer", "pre_tokenizer")}
    return hashlib.sha256(json.dumps(_with_sorted_keys(parts)).encode()).hexdigest()


def _with_sorted_keys(part: Any) -> Any:
    """Sort the keys of all mappings; ``json.dumps`` takes twice as long to do so."""
    if isinstance(part, dict):
        if all(type(value) is int for value in part.values()):  # a vocabulary
            return {key: part[key] for key in sorted(part)}
        return {key: _with_sorted_keys(part[key]) for key in sorted(part)}
    if isinstance(part, list) and part and isinstance(part[0], dict):  # merges hold no mappings
        return [_with_sorted_keys(item) for item in part]
    return part


def _without_offsets(part: Any) -> Any:
    """Drop ``trim_offsets``, which affects offsets but not ids."""
    if isinstance(part, list):
        return [_without_offsets(item) for item in part]
    if isinstance(part, dict):
        return {key: _without_offsets(value) for key, value in part.items() if key != "trim_offsets"}
    return part
