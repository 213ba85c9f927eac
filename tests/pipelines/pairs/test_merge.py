"""Pairs drawn into splits after they are merged."""

from __future__ import annotations

from collections import defaultdict

from corpora.storage.manifest_file import read_manifest
from tests.artefacts import all_rows
from tests.pipelines.pairs.raw import build


def test_a_drawn_split_parts_documents(scrolls, documents, tmp_path):
    shares = {"split": "draw", "validation": 0.2, "test": 0.2, "error_budget": 0.5}
    build(scrolls, documents, str(tmp_path / "a"), **shares)
    rows = all_rows(tmp_path / "a", "farspan.pairs")
    splits: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        splits[row["document_ids"][0]].add(row["split"])
    assert all(len(one) == 1 for one in splits.values())
    assert len(set.union(*splits.values())) > 1
    reasons = read_manifest(str(tmp_path / "a")).rejects
    assert reasons == {"no_reference": 30}, "the test records of the data have no answer, as a drawn split needs"
