"""Places of hidden text, against a plain loop."""

from __future__ import annotations

import numpy as np

from corpora.storage.sharded_rows import ShardedRows
from pipelines.masks.places import places_of_masks
from tests.trainer.masked_folders import make_folders


def test_places_are_those_of_a_plain_loop(tmp_path):
    corpus, masks = make_folders(tmp_path, draws=2)
    texts = [row for batch in ShardedRows(corpus, "farspan.corpus").batches() for row in batch.to_pylist()]
    rows = [row for batch in ShardedRows(masks, "farspan.masks").batches() for row in batch.to_pylist()]
    in_row, in_document = [], []
    for row, text in zip(rows, texts * 2, strict=True):
        length = len(text["tokens"])
        edges = [*text["document_starts"], length]
        for start, size in zip(row["span_starts"], row["span_lengths"], strict=True):
            middle = start + size / 2
            (part,) = [k for k in range(len(edges) - 1) if edges[k] <= middle < edges[k + 1]]
            in_row.append(middle / length)
            in_document.append((middle - edges[part]) / (edges[part + 1] - edges[part]))
    found = places_of_masks(masks, ShardedRows(masks, "farspan.masks"))
    assert found is not None
    np.testing.assert_allclose(found[0], in_row, rtol=1e-6)
    np.testing.assert_allclose(found[1], in_document, rtol=1e-5)
    assert len(in_row) > 10


def test_without_the_corpus_there_are_none(tmp_path):
    _, masks = make_folders(tmp_path)
    (tmp_path / "corpus").rename(tmp_path / "gone")
    assert places_of_masks(masks, ShardedRows(masks, "farspan.masks")) is None
