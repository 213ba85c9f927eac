"""Rows of a corpus as lists of parts."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from corpora.schemas.corpus import Corpus


class Part(NamedTuple):
    """A part of a document in a row."""

    document: str
    offset: int  # in the document
    tokens: list[int]


def rows_of(folder: object) -> Iterator[tuple[int, list[Part]]]:
    """Cluster and parts of each row."""
    corpus = Corpus(str(folder))
    batch = corpus.take(np.arange(len(corpus)))
    for row in range(len(batch)):
        tokens, starts = batch.tokens[row].tolist(), batch.document_starts[row].tolist()
        edges = zip(starts, [*starts[1:], len(tokens)], strict=True)
        documents = zip(batch.document_ids[row].as_py(), batch.document_offsets[row].tolist(), edges, strict=True)
        yield int(batch.cluster_ids[row]), [Part(name, offset, tokens[a:b]) for name, offset, (a, b) in documents]
