"""Protection of a tokenizer.json's special tokens, so that text cannot yield them.

With ``encode_special_tokens``, the tokenizers library does not look for special tokens before the model runs. But a
model whose vocabulary contains the same strings still yields them: for a Unigram model, ``</s>`` is the best piece. So
these pieces are renamed in the model that encodes, and merges that build them are dropped. Ids do not change, nor does
the encoding of texts that spell none of the names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

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
        parts["pre_tokenizer"] = _after(config["pre_tokenizer"], _CUT_BYTE_PIECES)
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


def _after(pre_tokenizer: Mapping[str, Any] | None, step: Mapping[str, Any]) -> dict[str, Any]:
    first = [] if pre_tokenizer is None else pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    return {"type": "Sequence", "pretokenizers": [*first, step]}
