from __future__ import annotations

import os
import shutil
from dataclasses import replace

import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from corpora.schemas.pairs import pairs_schema
from corpora.storage.manifest_file import read_manifest, write_manifest
from corpora.storage.shards import write_shard
from corpora.verify.pairs import verify_pairs
from tests.artefacts import all_rows, make_documents, make_pairs


@pytest.fixture
def folder(tmp_path):
    documents = make_documents(str(tmp_path / "documents"), shards=1)
    return make_pairs(str(tmp_path / "pairs"), documents, pairs=9, documents_per_pair=2)


def rewritten(folder, change, **totals):
    """The artefact with changed rows, and a manifest that agrees with the bytes."""
    manifest, rows = read_manifest(folder), all_rows(folder, "farspan.pairs")
    change(rows)
    schema = pairs_schema(manifest.tokenizer["vocab_size"])
    with write_shard(os.path.join(folder, "shards", manifest.shards[0].name), schema, 8) as (writer, info):
        writer.write(pa.RecordBatch.from_pylist(rows, schema))
    write_manifest(folder, replace(manifest, shards=tuple(info), totals={**manifest.totals, **totals}))
    return verify_pairs(folder)


def test_sound_pairs_have_no_problems(folder):
    assert verify_pairs(folder) == []
    assert rewritten(folder, lambda rows: None, documents=18, documents_in_several_splits=0) == []


@pytest.mark.parametrize(
    ("row", "change", "said"),
    [
        (1, {"pair_id": "pair-0"}, "row 1: pair id 'pair-0' occurs twice"),
        (2, {"split": "dev"}, "row 2: split 'dev' is none of train, validation, test"),
        (3, {"references": []}, "row 3: pair 'pair-3' of split train has no target or no reference"),
        (4, {"attributes": "[1]"}, "row 4: attributes are not a JSON object"),
        (5, {"query": [9999]}, "query: token ids"),
        (5, {"targets": [[9999]]}, "targets: token ids"),
        (6, {"document_rows": [0, 1]}, "row 0 of the documents is 'made:0:0', not 'made:0:12'"),
        (6, {"document_rows": [0, 999]}, "document rows 0..999 of 40 documents"),
        (7, {"document_rows": [14]}, "document_ids and document_rows have different lengths"),
    ],
)
def test_wrong_rows_are_named(folder, row, change, said):
    problems = rewritten(folder, lambda rows: rows[row].update(change))
    assert said in "\n".join(problems)


def test_totals_are_compared_with_the_rows(folder):
    problems = rewritten(folder, lambda rows: rows.pop(), documents=18, documents_in_several_splits=3)
    assert "manifest.json: 8 rows in shards, 9 in totals" in problems
    assert "manifest.json: totals say 18 documents, the shards hold 16" in problems
    assert "manifest.json: totals say 3 documents_in_several_splits, the shards hold 0" in problems


def test_pairs_of_other_documents_are_refused_and_documents_may_move(folder, tmp_path):
    shutil.move(tmp_path / "documents", tmp_path / "moved")
    with pytest.raises(FarspanError, match="documents"):
        verify_pairs(folder)
    assert verify_pairs(folder, str(tmp_path / "moved")) == []
    other = make_documents(str(tmp_path / "other"), shards=1, seed=1)
    with pytest.raises(FarspanError, match="about other documents than those in"):
        verify_pairs(folder, other)
