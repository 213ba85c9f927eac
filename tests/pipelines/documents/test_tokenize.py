"""Texts that do not become documents."""

from __future__ import annotations

import json

from corpora.verify.artefact import verify
from tests.corpora.tokenizers.test_special_pieces import JSON
from tests.pipelines.documents.jobs import build, rejects


def test_a_text_that_a_tokenizer_takes_for_special_tokens_is_a_dead_letter(tmp_path):
    """Only one that spells the name under which an encoder hides a piece: a noncharacter, and the token."""
    (tmp_path / "tokenizer.json").write_bytes(JSON["whole words"])
    lines = [{"text": text} for text in ("ab <mask> text|>", "\U0010ffff<mask> ab", "<mask>")]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    output = str(tmp_path / "documents")
    inputs = f"made={tmp_path / 'a.jsonl'}"
    manifest = build(inputs, output, str(tmp_path / "tokenizer.json"), error_budget=1.0)
    assert manifest.rejects == {"special_token": 1}
    assert manifest.counts["made"]["written"] == 2
    assert [(row["record"], row["raw"].decode()) for row in rejects(output)] == [("a.jsonl:29", "\U0010ffff<mask> ab")]
    assert verify(output) == []
