"""Fingerprint of a tokenizer.json: equal for files that encode alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


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
