from __future__ import annotations

import numpy as np
import pyarrow as pa

from corpora.packing.assemble import assemble
from corpora.storage.ragged import Ragged


def rows(uses=None, cluster_ids=None):
    """Two rows: parts of 3 and 2 tokens, then a continuation of 4 tokens of a document of 10."""
    return assemble(
        pa.array(["a", "b", "c"]),
        Ragged.from_lengths(np.arange(9, dtype=np.uint16), [3, 2, 4]),
        np.array([1, 3, 7]),
        np.array([0, 0, 6]),
        np.array([3, 2, 10]),
        np.array([0, 2, 3]),
        uses,
        cluster_ids,
    )


def test_parts_and_sentences_count_from_the_beginning_of_their_row():
    made = rows(cluster_ids=np.array([7, -1]))
    assert [made.tokens[row].tolist() for row in (0, 1)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8]]
    assert [made.document_starts[row].tolist() for row in (0, 1)] == [[0, 3], [0]]
    assert [made.sentence_starts[row].tolist() for row in (0, 1)] == [[0, 1, 3], [0, 2]]
    assert [made.document_offsets[row].tolist() for row in (0, 1)] == [[0, 0], [6]]
    assert made.document_ids.to_pylist() == [["a", "b"], ["c"]]
    assert made.cluster_ids.tolist() == [7, -1]


def test_a_row_that_repeats_another_has_an_id_of_its_own():
    once, again, later = rows(), rows(uses=np.array([1, 0, 0])), rows(uses=np.array([0, 1, 0]))
    assert not (once.sequence_ids[0] == again.sequence_ids[0]).all()
    assert (once.sequence_ids[1] == again.sequence_ids[1]).all()
    assert (once.sequence_ids == later.sequence_ids).all()
