"""Rows of vectors, clusters and neighbours that break the contract, one at a time."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from corpora.schemas.vectors import PARTS_OF_CLUSTER, clusters_schema, neighbours_schema, vector_column, vectors_schema
from corpora.verify.vectors import ClustersCheck, NeighboursCheck, VectorsCheck

NAME = "part-00001-of-00002.arrow"  # of the second first-level cluster
MANIFEST = SimpleNamespace(
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
KINDS = {
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
    found = [*check.shard(MANIFEST, f"shards/{NAME}" if kind != "vectors" else NAME, parts), *check.end()]
    if not found:
        assert check.counted == {"documents": 4, "tokens": 100}
    return found


@pytest.mark.parametrize("batches", [1, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_sound_rows_have_no_problems(kind, batches):
    neighbours = {"neighbours": [[1], [0], [3], []]}
    assert problems(kind, batches, **neighbours) == []


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
    three = {"cluster_id": [FIRST] * 4, "document_row": [1, 2, 3, 5], "jaccards": [[0.0, 0.0], [0.0], [1.0], []]}
    three["neighbours"] = [[1, 2], [0], [3], []]
    assert problems("neighbours", **three, similarities=[[0.5, 0.5], [0.9], [0.5], []]) == []
    found = problems("neighbours", **three, similarities=[[0.5, 0.6], [0.9], [0.5], []])
    assert [problem.partition(": ")[2] for problem in found] == ["similarities do not descend"]
