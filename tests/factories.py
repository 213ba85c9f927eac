"""Random blocks of corpus rows for tests, as hypothesis strategies and from plain seeds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from corpora.schemas.sequences import NO_CLUSTER, SequenceBatch
from corpora.storage.ragged import Ragged

VOCAB = 32_000
FIRST_TEXT_ID = 4  # ids below are <pad>, <bos>, <eos>, <unk>
OWNED = {"<pad>": 0, "<bos>": 1, "<eos>": 2, "<unk>": 3}


def make_sequences(
    lengths: Sequence[int] | np.ndarray,
    documents: int | Sequence[Sequence[int] | np.ndarray] = 1,
    *,
    seed: int = 0,
    dtype: type = np.uint16,
    vocab: int = VOCAB,
    mean_sentence: int = 12,
    clusters: bool = False,
) -> SequenceBatch:
    """Rows of random text tokens.

    Args:
        lengths: text tokens of each row; may be 0.
        documents: how many parts a row has at most (cut at random, fewer when the row is shorter), or, row by row,
            where the parts begin.
        seed: of everything random here; row i also depends on nothing but (seed, i).
        dtype: of the tokens, uint16 or int32.
        vocab: ids are drawn from ``[FIRST_TEXT_ID, vocab)``.
        mean_sentence: tokens in a sentence, on average.
        clusters: number every second row's cluster, the others have none.
    """
    rows: list[dict[str, Any]] = []
    for i, length in enumerate(lengths):
        rng = np.random.default_rng([seed, i])
        starts = _cut(rng, length, documents) if isinstance(documents, int) else np.asarray(documents[i])
        inside = np.flatnonzero(rng.random(length) < 1 / mean_sentence)
        rows.append(
            {
                "id": rng.bytes(16),
                "tokens": rng.integers(FIRST_TEXT_ID, vocab, length),
                "starts": starts,
                "names": [f"test:file-{seed}-{i}:{part}" for part in range(len(starts))],
                "offsets": np.where(np.arange(len(starts)) == 0, 7 * (i % 2), 0),
                "sentences": np.union1d(inside, starts),
            }
        )
        rows[-1]["lengths"] = np.diff([*starts, length]) + rows[-1]["offsets"]
    numbers = np.where(np.arange(len(rows)) % 2 == 0, np.arange(len(rows)), NO_CLUSTER)
    return SequenceBatch(
        sequence_ids=np.frombuffer(b"".join(row["id"] for row in rows), np.uint8).reshape(-1, 16),
        tokens=Ragged.from_rows([row["tokens"] for row in rows], dtype),
        document_starts=Ragged.from_rows([row["starts"] for row in rows], np.int32),
        document_ids=pa.array([row["names"] for row in rows], pa.list_(pa.string())),
        document_offsets=Ragged.from_rows([row["offsets"] for row in rows], np.int32),
        document_lengths=Ragged.from_rows([row["lengths"] for row in rows], np.int32),
        sentence_starts=Ragged.from_rows([row["sentences"] for row in rows], np.int32),
        cluster_ids=numbers if clusters else np.full(len(rows), NO_CLUSTER),
    )


def _cut(rng: np.random.Generator, length: int, documents: int) -> np.ndarray:
    """Part beginnings: 0 and up to ``documents - 1`` distinct positions inside the row; none for an empty row."""
    if length == 0:
        return np.empty(0, np.int64)
    cuts = rng.choice(length - 1, min(documents - 1, length - 1), replace=False) + 1 if length > 1 else []
    return np.sort(np.concatenate([[0], cuts])).astype(np.int64)


@st.composite
def sequence_batches(
    draw: st.DrawFn, *, min_rows: int = 0, max_rows: int = 4, max_length: int = 120, max_documents: int = 6
) -> SequenceBatch:
    """Blocks of rows with few, short and empty rows, both token widths, one and many documents."""
    lengths = draw(
        st.lists(st.one_of(st.integers(0, 4), st.integers(0, max_length)), min_size=min_rows, max_size=max_rows)
    )
    return make_sequences(
        lengths,
        draw(st.integers(1, max_documents)),
        seed=draw(st.integers(0, 2**31)),
        dtype=draw(st.sampled_from([np.uint16, np.int32])),
        mean_sentence=draw(st.sampled_from([1, 3, 12])),
        clusters=draw(st.booleans()),
    )
