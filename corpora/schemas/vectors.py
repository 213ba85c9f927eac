"""Schemas of document vectors, clusters and neighbours, from which retrieval-linked corpora are built."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

PARTS_OF_CLUSTER = 1 << 20  # cluster_id = first-level cluster * PARTS_OF_CLUSTER + its second-level part


def vectors_schema(dimension: int) -> pa.Schema:
    """Return the columns of ``farspan.vectors`` (docs/formats.md): one document per row, ``dimension`` float16 each."""
    return pa.schema([*_DOCUMENT, *_content(dimension)])


def clusters_schema(dimension: int) -> pa.Schema:
    """Return the columns of ``farspan.clusters``: those of ``farspan.vectors`` and the cluster."""
    return pa.schema([*_DOCUMENT, _CLUSTER, *_content(dimension)])


def neighbours_schema() -> pa.Schema:
    """Return the columns of ``farspan.neighbours``: for each document of a cluster the nearest others, best first."""
    return pa.schema(
        [
            *_DOCUMENT,
            _CLUSTER,
            pa.field("norm", pa.float32(), nullable=False),
            pa.field("neighbours", pa.list_(pa.int32()), nullable=False),
            pa.field("similarities", pa.list_(pa.float16()), nullable=False),
            pa.field("jaccards", pa.list_(pa.float16()), nullable=False),
        ]
    )


_DOCUMENT = (
    pa.field("document_id", pa.string(), nullable=False),
    pa.field("document_row", pa.int64(), nullable=False),
    pa.field("document_tokens", pa.int32(), nullable=False),
)
_CLUSTER = pa.field("cluster_id", pa.int64(), nullable=False)


def _content(dimension: int) -> list[pa.Field]:
    return [
        pa.field("shingles", pa.list_(pa.uint32()), nullable=False),
        pa.field("vector", pa.list_(pa.float16(), dimension), nullable=False),
    ]


_OF_DOCUMENT = {
    "document_id": "`source:path:record`, unique",
    "document_row": "row of the document in the documents artefact",
    "document_tokens": "number of tokens of the document, by the tokenizer of the corpus",
}
_OF_CLUSTER = {"cluster_id": "cluster of the document"}
_OF_CONTENT = {
    "shingles": "smallest hashes of the document's word 5-grams, ascending",
    "vector": "the document's vector",
}
VECTOR_COLUMNS = {**_OF_DOCUMENT, **_OF_CONTENT}
CLUSTER_COLUMNS = {**_OF_DOCUMENT, **_OF_CLUSTER, **_OF_CONTENT}
NEIGHBOUR_COLUMNS = {
    **_OF_DOCUMENT,
    **_OF_CLUSTER,
    "norm": "norm of the document's vector",
    "neighbours": "rows of this shard, most similar first",
    "similarities": "inner product with each neighbour",
    "jaccards": "shared word 5-grams with each neighbour, as an estimated Jaccard index",
}
"""Meaning of the columns of the three schemas, for cards."""


def vector_column(vectors: np.ndarray) -> pa.FixedSizeListArray:
    """Convert ``vectors``, ``(n, d)``, to an Arrow column of float16."""
    flat = np.ascontiguousarray(vectors, np.float16).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), type=pa.list_(pa.float16(), vectors.shape[1]))


def vector_rows(column: pa.FixedSizeListArray) -> np.ndarray:
    """View a ``vector`` column without nulls as ``(n, d)`` float16."""
    return column.flatten().to_numpy().reshape(len(column), column.type.list_size)
