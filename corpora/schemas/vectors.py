"""Schemas of document vectors, clusters and neighbours, from which retrieval-linked corpora are built."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from corpora.schemas.sequences import Column, make_schema

PARTS_OF_CLUSTER = 1 << 20  # cluster_id = first-level cluster * PARTS_OF_CLUSTER + its second-level part


_DOCUMENT = {
    "document_id": Column(pa.string(), "`source:path:record`, unique"),
    "document_row": Column(pa.int64(), "row of the document in the documents artefact"),
    "document_tokens": Column(pa.int32(), "number of tokens of the document, by the tokenizer of the corpus"),
}
_CLUSTER = {"cluster_id": Column(pa.int64(), "cluster of the document")}
_CONTENT = {
    "shingles": Column(pa.list_(pa.uint32()), "smallest hashes of the document's word 5-grams, ascending"),
    "vector": Column(lambda dimension: pa.list_(pa.float16(), dimension), "the document's vector"),
}
VECTOR_COLUMNS = {**_DOCUMENT, **_CONTENT}
CLUSTER_COLUMNS = {**_DOCUMENT, **_CLUSTER, **_CONTENT}
NEIGHBOUR_COLUMNS = {
    **_DOCUMENT,
    **_CLUSTER,
    "norm": Column(pa.float32(), "norm of the document's vector"),
    "neighbours": Column(pa.list_(pa.int32()), "rows of this shard, most similar first"),
    "similarities": Column(pa.list_(pa.float16()), "inner product with each neighbour"),
    "jaccards": Column(
        pa.list_(pa.float16()), "shared word 5-grams with each neighbour, as an estimated Jaccard index"
    ),
}


def vectors_schema(dimension: int) -> pa.Schema:
    """Return the columns of ``farspan.vectors`` (docs/formats.md): one document per row, ``dimension`` float16 each."""
    return make_schema(VECTOR_COLUMNS, dimension)


def clusters_schema(dimension: int) -> pa.Schema:
    """Return the columns of ``farspan.clusters``: those of ``farspan.vectors`` and the cluster."""
    return make_schema(CLUSTER_COLUMNS, dimension)


def neighbours_schema() -> pa.Schema:
    """Return the columns of ``farspan.neighbours``: for each document of a cluster the nearest others, best first."""
    return make_schema(NEIGHBOUR_COLUMNS, 0)


def vector_column(vectors: np.ndarray) -> pa.FixedSizeListArray:
    """Convert ``vectors``, ``(n, d)``, to an Arrow column of float16."""
    flat = np.ascontiguousarray(vectors, np.float16).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), type=pa.list_(pa.float16(), vectors.shape[1]))


def vector_rows(column: pa.FixedSizeListArray) -> np.ndarray:
    """View a ``vector`` column without nulls as ``(n, d)`` float16."""
    return column.flatten().to_numpy().reshape(len(column), column.type.list_size)
