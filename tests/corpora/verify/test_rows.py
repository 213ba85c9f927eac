"""Rows of corpora, pairs, predictions and vectors against their format."""

import os
import shutil
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.schemas.pairs import pairs_schema
from corpora.schemas.predictions import predictions_schema
from corpora.schemas.vectors import PARTS_OF_CLUSTER, clusters_schema, neighbours_schema, vector_column, vectors_schema
from corpora.storage.manifest_file import read_manifest, write_manifest
from corpora.storage.ragged import Ragged
from corpora.storage.shards import write_shard
from corpora.verify.artefact import verify
from corpora.verify.rows import check_ascending, find_gaps
from corpora.verify.vectors import ClustersCheck, NeighboursCheck, VectorsCheck
from tests.artefacts import all_rows, make_documents, make_pairs, make_predictions
from tests.corpora.verify.test_artefact import column, rewrite


def test_a_lost_part_is_a_gap_in_its_document(corpus):
    def forget(table):
        rows = table.column("document_offsets").to_pylist()
        continued = next(i for i, offsets in enumerate(rows) if offsets[0])
        rows[continued][0] += 1
        return column(table, "document_offsets", rows)

    rewrite(corpus, forget)
    assert any("part of document" in problem for problem in verify(corpus))


def test_rows_that_break_the_contract(corpus):
    def break_rows(table):
        ids, tokens, starts = (table.column(name).to_pylist() for name in ("sequence_id", "tokens", "sentence_starts"))
        tokens[1][0] = 60_000
        tokens[2][1], tokens[2][2], tokens[3][0] = 2, 3, 1  # </s>, <unk>, which a text may hold, and <pad>
        starts[0], starts[1], starts[2] = [0, 5, 5], [1, 2], [0, 100_000]
        table = column(column(table, "tokens", tokens), "sentence_starts", starts)
        return column(table, "sequence_id", [ids[0]] * 2 + ids[2:])

    rewrite(corpus, break_rows)
    problems = verify(corpus)
    assert sum("sentence_starts do not ascend" in problem for problem in problems) == 3
    assert any("occurs twice" in problem for problem in problems)
    assert any("are not all in the vocabulary" in problem for problem in problems)
    (special,) = (problem for problem in problems if "stored as text" in problem)
    assert "row 2: <eos> (id 2) is stored as text, as are 1 more" in special


def test_a_sequence_longer_than_promised(corpus):
    manifest: Any = read_manifest(corpus)
    manifest.config["sequence_length"] = 64
    write_manifest(corpus, manifest)
    assert any("exceed the sequence length" in problem for problem in verify(corpus))


def by_hand(rows: list[list[int]], lengths: list[int]) -> list[int]:
    """Rows whose starts do not ascend from 0 inside the row; a row with tokens has a start."""
    found = []
    for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        sound = row == sorted(set(row)) and set(row) <= {*range(length)} and row[:1] == ([0] if length else [])
        found += [] if sound else [number]
    return found


@settings(max_examples=150)
@given(st.lists(st.tuples(st.lists(st.integers(-1, 5), max_size=4), st.integers(0, 6)), max_size=5))
def test_starts_ascend_from_0_inside_the_row(drawn):
    rows, lengths = [row for row, _ in drawn], [length for _, length in drawn]
    found = list(check_ascending("here", "starts", Ragged.from_rows(rows, np.int32), np.array(lengths, np.int64)))
    expected = [f"here row {number}: starts do not ascend from 0 inside the row" for number in by_hand(rows, lengths)]
    assert found == expected


def columns(parts) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    documents, offsets, sizes, lengths = (np.array(column) for column in zip(*parts, strict=True))
    return documents, offsets, sizes, lengths


@st.composite
def whole_documents(draw):
    """(document, offset, size, length) of documents that are cut anew each of the times they occur, shuffled."""
    parts = []
    for document in range(draw(st.integers(1, 5))):
        length = draw(st.integers(1, 40))
        for _ in range(draw(st.integers(1, 3))):
            edges = sorted({0, length, *draw(st.lists(st.integers(1, length), max_size=3))})
            parts += [(document, a, b - a, length) for a, b in pairwise(edges)]
    return draw(st.permutations(parts))


@given(whole_documents())
def test_whole_documents_have_no_gap(parts):
    assert find_gaps(*columns(parts)) == []


@given(whole_documents(), st.data())
def test_a_lost_part_shows(parts, data):
    lost = data.draw(st.sampled_from([part for part in parts if part[2] < part[3]] or [None]))
    if lost is None:
        return
    parts = list(parts)
    parts.remove(lost)
    found = find_gaps(*columns(parts)) if parts else [(0, "")]
    inside = lost[1] > 0 or lost[1] + lost[2] < lost[3]
    assert bool(found) == inside


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ([(0, 0, 5, 10)], "ends at token 5"),
        ([(0, 5, 5, 10)], "continues at token 5"),
        ([(0, 0, 11, 10)], "tokens 0 to 11 of a document of 10"),
        ([(0, 0, 10, 10), (0, 0, 11, 11)], "another part gives another length"),
        ([(0, 0, 5, 10), (0, 6, 4, 10)], "at token"),
    ],
)
def test_faults_are_named(parts, what):
    (fault,) = find_gaps(*columns(parts))
    assert what in fault[1]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=5), st.integers(1, 12), st.data())
def test_windows_with_an_overlap_and_the_cuts_of_what_they_leave(lengths, window, data):
    stride = data.draw(st.integers(1, window))
    parts = []
    for document, length in enumerate(lengths):
        starts = range(0, max(length - window + stride, 1), stride)
        parts += [(document, start, min(window, length - start), length) for start in starts]
        last = parts.pop()
        edges = sorted({0, last[2], *data.draw(st.lists(st.integers(0, last[2]), max_size=2))})
        parts += [(document, last[1] + a, b - a, length) for a, b in pairwise(edges)]
    parts = data.draw(st.permutations(parts))
    assert find_gaps(*columns(parts), overlap=window - stride) == []


def test_overlap_and_allowed_cuts():
    windows = [(0, 0, 8, 20), (0, 6, 8, 20), (0, 12, 8, 20)]
    assert find_gaps(*columns(windows), overlap=2) == []
    assert find_gaps(*columns(windows))
    assert find_gaps(*columns(windows[:2]), overlap=2)
    assert find_gaps(*columns(windows[:2]), overlap=2, may_be_cut=True) == []
    assert find_gaps(*columns(windows[1:]), overlap=2, may_be_cut=True)


@pytest.fixture
def folder(tmp_path):
    documents = make_documents(str(tmp_path / "documents"), shards=1)
    return make_pairs(str(tmp_path / "pairs"), documents, pairs=9, documents_per_pair=2)


def rewritten(folder, change, **totals):
    """The problems of pairs or predictions with changed rows, and a manifest that agrees with the bytes."""
    manifest = read_manifest(folder)
    rows, predicted = all_rows(folder, manifest.format), manifest.format == "farspan.predictions"
    change(rows)
    config, tokenizer = manifest.config, manifest.tokenizer
    schema = predictions_schema(config["model"]["vocab_size"]) if predicted else pairs_schema(tokenizer["vocab_size"])
    with write_shard(os.path.join(folder, "shards", manifest.shards[0].name), schema, 8) as (writer, info):
        writer.write(pa.RecordBatch.from_pylist(rows, schema))
    write_manifest(folder, replace(manifest, shards=tuple(info), totals={**manifest.totals, **totals}))
    return verify(folder)


def test_sound_pairs_and_predictions_have_no_problems(folder, predictions):
    assert verify(folder) == verify(predictions) == []
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
    assert said in "\n".join(rewritten(folder, lambda rows: rows[row].update(change)))


def test_totals_are_compared_with_the_rows(folder):
    problems = rewritten(folder, lambda rows: rows.pop(), documents=18, documents_in_several_splits=3)
    assert "manifest.json: 8 rows in shards, 9 in totals" in problems
    assert "manifest.json: totals say 18 documents, the shards hold 16" in problems
    assert "manifest.json: totals say 3 documents_in_several_splits, the shards hold 0" in problems


def test_pairs_of_other_documents_are_refused_and_documents_may_move(folder, tmp_path):
    shutil.move(tmp_path / "documents", tmp_path / "moved")
    with pytest.raises(FarspanError, match="documents"):
        verify(folder)
    assert verify(folder, str(tmp_path / "moved")) == []
    other = make_documents(str(tmp_path / "other"), shards=1, seed=1)
    with pytest.raises(FarspanError, match="about other documents than those in"):
        verify(folder, other)


@pytest.fixture
def predictions(tmp_path):
    documents = make_documents(str(tmp_path / "of_answers"), shards=1)
    return make_predictions(str(tmp_path / "predictions"), make_pairs(str(tmp_path / "questions"), documents))


def test_wrong_predictions_are_named(predictions):
    def change(rows):
        rows[1]["pair_id"] = rows[0]["pair_id"]
        rows[2]["score"] = np.nan
        rows[3]["tokens"] = [65000]

    problems = "\n".join(rewritten(predictions, change))
    assert "has two predictions" in problems
    assert "row 2: the score is not finite" in problems
    assert "token 65000 is outside the model's vocabulary" in problems
    assert "totals say" in problems


NAME = "part-00001-of-00002.arrow"  # of the second first-level cluster
MANIFEST: Any = SimpleNamespace(
    config={"dimension": 2}, shards=[SimpleNamespace(name="part-00000-of-00002.arrow"), SimpleNamespace(name=NAME)]
)
FIRST = PARTS_OF_CLUSTER
ROWS = {
    "document_id": ["a", "b", "c", "d"],
    "document_row": [3, 5, 1, 2],
    "document_tokens": [10, 20, 30, 40],
    "cluster_id": [FIRST, FIRST, FIRST + 1, FIRST + 1],
    "shingles": [[1, 5], [], [7], [2, 3, 9]],
    "vector": [[1, 0], [0, 1], [0.5, 0.5], [-1, 0]],
    "norm": [1.0] * 4,
    "neighbours": [[1], [0], [3], []],
    "similarities": [[0.9], [0.9], [0.5], []],
    "jaccards": [[0.0], [0.0], [1.0], []],
}
KINDS: dict[str, tuple[Any, pa.Schema]] = {
    "vectors": (VectorsCheck, vectors_schema(2)),
    "clusters": (ClustersCheck, clusters_schema(2)),
    "neighbours": (NeighboursCheck, neighbours_schema()),
}


def problems(kind: str, batches: int = 1, **changes) -> list[str]:
    """Everything that a check reports of ``ROWS`` with other columns, in so many batches."""
    check, schema = KINDS[kind][0](MANIFEST), KINDS[kind][1]
    assert check.schema == schema
    values = {**ROWS, **changes}
    arrays = [
        vector_column(np.array(values[field.name], np.float16))
        if field.name == "vector"
        else pa.array([np.array(row, np.float16) for row in values[field.name]], field.type)
        if pa.types.is_list(field.type) and pa.types.is_float16(field.type.value_type)
        else pa.array(values[field.name], field.type)
        for field in schema
    ]
    whole = pa.record_batch(arrays, schema=schema)
    size = len(whole) // batches
    parts = [whole.slice(start, size) for start in range(0, len(whole), size)]
    found = [*check.shard(f"shards/{NAME}" if kind != "vectors" else NAME, parts), *check.end()]
    if not found:
        assert check.counted == {"documents": 4, "tokens": 100}
    return found


@pytest.mark.parametrize("batches", [1, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_sound_rows_have_no_problems(kind, batches):
    assert problems(kind, batches, neighbours=[[1], [0], [3], []]) == []


@pytest.mark.parametrize("kind", ["vectors", "clusters"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vector": [[1, 0], [0, np.nan], [1, 1], [np.inf, 0]]}, "row 1: vector of document 'b' is not finite"),
        ({"shingles": [[1, 1], [], [], []]}, "batch 0: shingles do not ascend"),
        ({"shingles": [[5, 1], [], [], []]}, "batch 0: shingles do not ascend"),
        ({"document_row": [3, 5, 1, 5]}, "row 5 of the documents has two vectors"),
    ],
)
def test_wrong_vectors_are_named(kind, changes, message):
    found = problems(kind, **changes)
    assert any(message in problem for problem in found)
    if "vector" in changes:
        assert any("row 3: vector of document 'd' is not finite" in problem for problem in found)


@pytest.mark.parametrize("kind", ["clusters", "neighbours"])
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"document_row": [5, 3, 1, 2]}, "rows are not in the order of clusters and documents"),
        ({"cluster_id": [FIRST + 1, FIRST + 1, FIRST, FIRST]}, "rows are not in the order of clusters and documents"),
        ({"cluster_id": [0, 0, FIRST + 1, FIRST + 1]}, "holds another shard's cluster"),
    ],
)
def test_the_order_of_clusters_is_checked_also_across_batches(kind, batches, changes, message):
    assert any(message in problem for problem in problems(kind, batches, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"similarities": [[], [0.9], [0.5], []]}, "neighbours, similarities and jaccards have different lengths"),
        ({"jaccards": [[0.0], [0.0, 0.0], [1.0], []]}, "neighbours, similarities and jaccards have different lengths"),
        ({"neighbours": [[0], [0], [3], []]}, "a neighbour is not another row of the shard"),
        ({"neighbours": [[4], [0], [3], []]}, "a neighbour is not another row of the shard"),
        ({"neighbours": [[-1], [0], [3], []]}, "a neighbour is not another row of the shard"),
        ({"neighbours": [[2], [0], [3], []]}, "a neighbour is in another cluster"),
    ],
)
def test_wrong_neighbours_are_named(changes, message):
    assert any(message in problem for problem in problems("neighbours", **changes))


def test_similarities_that_do_not_descend_are_named():
    three: dict[str, Any] = {"cluster_id": [FIRST] * 4, "document_row": [1, 2, 3, 5]}
    three |= {"neighbours": [[1, 2], [0], [3], []], "jaccards": [[0.0, 0.0], [0.0], [1.0], []]}
    assert problems("neighbours", **three, similarities=[[0.5, 0.5], [0.9], [0.5], []]) == []
    found = problems("neighbours", **three, similarities=[[0.5, 0.6], [0.9], [0.5], []])
    assert [problem.partition(": ")[2] for problem in found] == ["similarities do not descend"]
