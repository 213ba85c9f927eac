"""A tokenizer.json: reading, with refusals of damaged ones, its fingerprint, and protection of its special tokens.

With ``encode_special_tokens``, the tokenizers library does not look for special tokens before the model runs. But a
model whose vocabulary contains the same strings still yields them: for a Unigram model, ``</s>`` is the best piece. So
``seal`` renames these pieces in the model that encodes, and drops merges that build them. Ids do not change, nor does
the encoding of texts that spell none of the names.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
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


def load(config: dict[str, Any]) -> tuple[tokenizers.Tokenizer, dict[str, int], dict[str, Any]]:
    """Load with the tokenizers library, so that the spelling of a special token in a document is encoded as text.

    Returns the tokenizer, its vocabulary, and ``config`` as this version of the library writes it, with all defaults.
    """
    source = json.dumps(config, ensure_ascii=False, separators=(",", ":"))
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
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _without_offsets(part: Any) -> Any:
    """Drop ``trim_offsets``, which affects offsets but not ids."""
    if isinstance(part, list):
        return [_without_offsets(item) for item in part]
    if isinstance(part, dict):
        return {key: _without_offsets(value) for key, value in part.items() if key != "trim_offsets"}
    return part


_BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
# Splits a text that spells a byte piece, ``<0x0A>``, after its first character.
_CUT_BYTE_PIECES = {
    "type": "Split",
    "pattern": {"Regex": "<(?=0x[0-9A-Fa-f]{2}>)"},
    "behavior": "Isolated",
    "invert": False,
}
_NONCHARACTER = "\U0010ffff"  # prefix of new names; Unicode excludes it from text for interchange


def ordinary_pieces(model: Mapping[str, Any]) -> set[str]:
    """Return the pieces that a model needs to encode text: single characters, and the bytes of a byte fallback.

    A piece such as ``!`` stays text even if a configuration declares it as padding.
    """
    prefix = model.get("continuing_subword_prefix") or ""
    suffix = model.get("end_of_word_suffix") or ""
    longest = 1 + len(prefix) + len(suffix)
    return _byte_pieces(model) | {
        piece
        for piece in _pieces(model)
        if len(piece) == 1 or (len(piece) <= longest and len(piece.removeprefix(prefix).removesuffix(suffix)) == 1)
    }


def seal(config: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Change a tokenizer.json so that no text yields a token of ``names``, for encoding only.

    The spelling of a byte piece, ``<0x0A>``, does not yield that byte either.

    ``names``: special tokens, none of which is an ordinary piece. Returns ``config`` itself if nothing has to change.
    Otherwise one with the same ids, without the special added tokens that the model's vocabulary contains, and with the
    others marked as special.
    """
    model = config["model"]
    reachable = _reachable(model, names)
    parts = {
        "model": _rename(model, reachable) if reachable else model,
        "added_tokens": [
            {**token, "special": token["special"] or token["content"] in names}
            for token in config["added_tokens"]
            if token["content"] not in reachable
        ],
        "pre_tokenizer": config["pre_tokenizer"],
    }
    if _reachable(model, _byte_pieces(model)):
        before = config["pre_tokenizer"]
        steps = [] if before is None else before.get("pretokenizers", [before])
        parts["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*steps, _CUT_BYTE_PIECES]}
    return config if all(config[name] == part for name, part in parts.items()) else config | parts


def _pieces(model: Mapping[str, Any]) -> Iterator[str]:
    vocab = model["vocab"]
    return (entry[0] for entry in vocab) if model["type"] == "Unigram" else iter(vocab)


def _byte_pieces(model: Mapping[str, Any]) -> set[str]:
    return {piece for piece in _pieces(model) if _BYTE_PIECE.fullmatch(piece)} if model.get("byte_fallback") else set()


def _reachable(model: Mapping[str, Any], names: Collection[str]) -> set[str]:
    """Return the ``names`` that are pieces and that the model's algorithm can build."""
    present = set(names).intersection(_pieces(model))
    if model["type"] != "BPE" or model.get("ignore_merges"):
        return present
    prefix = len(model.get("continuing_subword_prefix") or "")
    if not prefix and not any(_has_two_parts(name, model["vocab"]) for name in present):
        return set()  # spares a pass over the merges
    return present & {left + right[prefix:] for left, right in model["merges"]}


def _has_two_parts(name: str, vocab: Collection[str]) -> bool:
    """Return True if two pieces spell ``name``."""
    return any(name[:cut] in vocab and name[cut:] in vocab for cut in range(1, len(name)))


def _rename(model: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    if model["type"] == "Unigram":  # it matches pieces character by character, so it never finds an empty one
        return {**model, "vocab": [["" if piece in names else piece, score] for piece, score in model["vocab"]]}
    changes: dict[str, Any] = {
        "vocab": {_NONCHARACTER + piece if piece in names else piece: i for piece, i in model["vocab"].items()}
    }
    if model.get("unk_token") in names:
        changes["unk_token"] = _NONCHARACTER + model["unk_token"]
    if model["type"] == "BPE":
        prefix = len(model.get("continuing_subword_prefix") or "")
        changes["merges"] = [
            [left, right] for left, right in model["merges"] if names.isdisjoint((left, right, left + right[prefix:]))
        ]
    return {**model, **changes}
