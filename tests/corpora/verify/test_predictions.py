from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from corpora.schemas.predictions import predictions_schema
from corpora.storage.manifest_file import read_manifest, write_manifest
from corpora.storage.shards import write_shard
from corpora.verify.artefact import verify
from tests.artefacts import all_rows, make_documents, make_pairs, make_predictions


@pytest.fixture
def folder(tmp_path):
    documents = make_documents(str(tmp_path / "documents"), shards=1)
    return make_predictions(str(tmp_path / "predictions"), make_pairs(str(tmp_path / "pairs"), documents))


def rewritten(folder, change):
    """The artefact with changed rows, and a manifest that agrees with the bytes."""
    manifest, rows = read_manifest(folder), all_rows(folder, "farspan.predictions")
    change(rows)
    schema = predictions_schema(manifest.config["model"]["vocab_size"])
    with write_shard(os.path.join(folder, "shards", manifest.shards[0].name), schema, 8) as (writer, info):
        writer.write(pa.RecordBatch.from_pylist(rows, schema))
    write_manifest(folder, replace(manifest, shards=tuple(info)))
    return verify(folder)


def test_sound_predictions_have_no_problems(folder):
    assert verify(folder) == []


def test_wrong_rows_are_named(folder):
    def change(rows):
        rows[1]["pair_id"] = rows[0]["pair_id"]
        rows[2]["score"] = np.nan
        rows[3]["tokens"] = [65000]

    problems = "\n".join(rewritten(folder, change))
    assert "has two predictions" in problems
    assert "row 2: the score is not finite" in problems
    assert "token 65000 is outside the model's vocabulary" in problems
    assert "totals say" in problems


def test_a_lost_row_is_seen(folder):
    problems = rewritten(folder, lambda rows: rows.pop())
    assert "manifest.json: 7 rows in shards, 8 in totals" in problems
