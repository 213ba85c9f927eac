"""Reading of a tokenizer.json, with refusals of damaged ones."""

from __future__ import annotations

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


def decoded(data: bytes) -> str:
    """Decode a tokenizer.json that ``parse`` accepts, as ``json.loads`` does."""
    return data.decode(json.detect_encoding(data), "surrogatepass")


def load(
    config: dict[str, Any], text: str | None = None
) -> tuple[tokenizers.Tokenizer, dict[str, int], dict[str, Any]]:
    """Load with the tokenizers library, so that the spelling of a special token in a document is encoded as text.

    Returns the tokenizer, its vocabulary, and ``config`` as this version of the library writes it, with all defaults.
    """
    given = json.dumps(config, ensure_ascii=False, separators=(",", ":")) if text is None else text
    try:
        loaded = tokenizers.Tokenizer.from_str(given)
    except Exception as error:  # the library raises bare Exception
        raise FarspanError(f"tokenizer.json: the tokenizers library cannot read it: {one_line(error)}") from error
    vocab = loaded.get_vocab(with_added_tokens=True)
    if (largest := max(vocab.values(), default=-1)) > _MOST_GAPS * (len(vocab) + 1000):
        raise FarspanError(f"tokenizer.json: {len(vocab):,} tokens with ids up to {largest:,}; restore the file")
    loaded.encode_special_tokens = True
    written = loaded.to_str()
    return loaded, vocab, config if written == given else json.loads(written)


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
