"""Repeated ids of the user's own: the first record in input order stays, the others are rejected."""

from __future__ import annotations

import json
import random
from collections import Counter

from corpora.readers import ReadOptions
from corpora.tokenizers.load import load_tokenizer
from corpora.verify.artefact import verify
from tests.artefacts import all_rows, digests
from tests.pipelines.documents.jobs import build, rejects


def test_the_first_of_equal_ids_stays(tokenizer, tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    ids = [random.Random(1).randint(0, 60) for _ in range(300)]
    for name, part in (("a", ids[:150]), ("b", ids[150:])):
        lines = [json.dumps({"text": f"Text {name} {place}.", "key": f"k{key}"}) for place, key in enumerate(part)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    options = {"read": ReadOptions(id_field="key"), "error_budget": 1.0}
    manifests = [
        build(str(folder), tmp_path / str(size), tokenizer, task_bytes=size, **options) for size in (2_000, 700)
    ]
    few, many = (tmp_path / str(size) for size in (2_000, 700))
    assert len(digests(few)) < len(digests(many))
    assert all_rows(few) == all_rows(many)
    reader = load_tokenizer(tokenizer)
    found = {row["document_id"]: reader.decode(row["tokens"]) for row in all_rows(few)}
    expected = {}
    for place, key in enumerate(ids):
        name = "ab"[place >= 150]
        expected.setdefault(f"raw:k{key}", f"Text {name} {place % 150}.")
    assert found == expected
    assert manifests[0].rejects == {"duplicate_id": 300 - len(expected)}
    assert Counter(row["reason"] for row in rejects(few)) == manifests[0].rejects
    assert manifests[0].counts["raw"]["read"] == 300
    assert verify(str(few)) == []
