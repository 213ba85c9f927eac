"""Documents longer than an encoder can see: the part of them that it is shown."""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np

from corpora.storage.ragged import Ragged
from corpora.text.offsets import byte_offsets
from corpora.tokenizers import Tokenizer
from objectives.rouge import sentence_scores, split_words


def condense(
    texts: Sequence[str], sentence_starts: Ragged, tokenizer: Tokenizer, room: int, long_documents: str
) -> tuple[Ragged, np.ndarray]:
    """The ids of n texts, with no more than ``room`` of each.

    ``first`` cuts a longer text behind its first ``room`` tokens. ``principal`` keeps its principal sentences, in the
    order of the text: best score first, the earlier of equals, each that still fits. Where not even one fits, the best
    is cut.

    Args:
        sentence_starts: n rows, the characters at which sentences begin, ascending from 0.
        tokenizer: the encoder's; tokens are counted, and sentences cut out, in the ids of the whole text.
        room: at least 1.
        long_documents: ``principal`` or ``first``.

    Returns:
        n rows of int32, and ``(n,)`` bool: the texts that were longer.
    """
    ids = tokenizer.encode(texts)
    longer = ids.lengths > room
    rows = [ids[row][:room] for row in range(len(ids))]
    chosen = np.flatnonzero(longer).tolist() if long_documents == "principal" else []
    if chosen:
        long_texts = [texts[row] for row in chosen]
        scores = sentence_scores(split_words(long_texts, sentence_starts.take(chosen)))
        whole, starts = tokenizer.encode_with_starts(long_texts)
        for i, row in enumerate(chosen):
            sentences = byte_offsets(long_texts[i], sentence_starts[row])
            # edges: (sentences + 1,) tokens; a token belongs to the sentence in which it begins
            edges = np.append(np.searchsorted(starts[i], sentences), len(whole[i]))
            kept = _choose(np.argsort(-scores[i], kind="stable"), np.diff(edges), room)
            rows[row] = whole[i][np.repeat(kept, np.diff(edges))][:room]
    return Ragged.from_rows(rows, np.int32), longer


@numba.njit(cache=True, nogil=True)
def _choose(order: np.ndarray, sizes: np.ndarray, room: int) -> np.ndarray:
    """``(sentences,)`` bool: those that fit into ``room``, taken in ``order``; else the first that has tokens."""
    kept = np.zeros(len(sizes), np.bool_)
    left = room
    for sentence in order:
        if sizes[sentence] <= left:
            kept[sentence] = True
            left -= sizes[sentence]
    if left == room:
        for sentence in order:
            if sizes[sentence]:
                kept[sentence] = True
                break
    return kept
