"""Rows of documents as vectors, in clusters and with their neighbours: the inputs of retrieval-linked corpora."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

PARTS_OF_CLUSTER = 1 << 20  # cluster_id = first-level cluster * PARTS_OF_CLUSTER + part, where it was split again


def vectors_schema(dimension: int) -> pa.Schema:
    """The columns of ``farspan.vectors`` (docs/formats.md): one document a row, its vector in ``dimension`` float16."""
    return pa.schema([*_DOCUMENT, *_content(dimension)])


def clusters_schema(dimension: int) -> pa.Schema:
    """The columns of ``farspan.clusters``: those of ``farspan.vectors`` and the cluster."""
    return pa.schema([*_DOCUMENT, _CLUSTER, *_content(dimension)])


def neighbours_schema() -> pa.Schema:
    """The columns of ``farspan.neighbours``: for each document of a cluster the nearest others, best first."""
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


def vector_column(vectors: np.ndarray) -> pa.FixedSizeListArray:
    """Arrow column of ``(n, d)`` float16 ``vectors``."""
    flat = np.ascontiguousarray(vectors, np.float16).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), type=pa.list_(pa.float16(), vectors.shape[1]))


def vector_rows(column: pa.FixedSizeListArray) -> np.ndarray:
    """``(n, d)`` float16, a view of a ``vector`` column without nulls."""
    return column.flatten().to_numpy().reshape(len(column), column.type.list_size)
