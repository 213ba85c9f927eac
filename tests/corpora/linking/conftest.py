"""A shard of neighbours with three clusters."""

import numpy as np
import pyarrow as pa
import pytest

from corpora.schemas.vectors import neighbours_schema

CLUSTERS = [7, 7, 7, 8, 9, 9]
NEIGHBOURS = [[1, 2], [0], [], [], [5], [4]]  # rows of the shard
SIMILARITIES = [[0.9, 0.5], [0.9], [], [], [2.0], [2.0]]
JACCARDS = [[0.1, 0.85], [0.1], [], [], [0.0], [0.0]]
NORMS = [1.0, 1.0, 1.0, 1.0, 1.0, 4.0]


@pytest.fixture(params=[1, 2, 4, 6])
def batches(request):
    schema = neighbours_schema()
    columns = {
        "document_id": [f"made:{row}" for row in range(6)],
        "document_row": list(range(10, 16)),
        "document_tokens": [5] * 6,
        "cluster_id": CLUSTERS,
        "norm": NORMS,
        "neighbours": NEIGHBOURS,
        "similarities": [list(map(np.float16, row)) for row in SIMILARITIES],
        "jaccards": [list(map(np.float16, row)) for row in JACCARDS],
    }
    whole = pa.record_batch([pa.array(columns[field.name], field.type) for field in schema], schema=schema)
    return [whole.slice(first, request.param) for first in range(0, 6, request.param)]
