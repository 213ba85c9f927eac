"""Cards explain every column of every format."""

from __future__ import annotations

import pytest

from corpora.schemas.documents import documents_schema
from corpora.schemas.pairs import pairs_schema
from corpora.schemas.predictions import predictions_schema
from corpora.schemas.sequences import corpus_schema
from corpora.schemas.vectors import clusters_schema, neighbours_schema, vectors_schema
from objectives.api.masks import MASK_SCHEMA
from pipelines.cards.columns import COLUMNS, ROWS

SCHEMAS = {
    "farspan.documents": documents_schema(300, titles=True),
    "farspan.corpus": corpus_schema(300),
    "farspan.masks": MASK_SCHEMA,
    "farspan.vectors": vectors_schema(8),
    "farspan.clusters": clusters_schema(8),
    "farspan.neighbours": neighbours_schema(),
    "farspan.pairs": pairs_schema(300),
    "farspan.predictions": predictions_schema(300),
}


@pytest.mark.parametrize("format", SCHEMAS)
def test_every_column_has_a_meaning(format: str):
    assert set(COLUMNS[format]) == set(SCHEMAS[format].names)
    assert ROWS[format]
