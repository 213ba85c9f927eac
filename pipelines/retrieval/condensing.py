"""Shorten documents that exceed an encoder's limit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corpora.compiled import compiled
from corpora.storage.ragged import Ragged
from corpora.text.utf8 import byte_offsets
from corpora.tokenizers.protocol import Tokenizer
from objectives.rouge import sentence_scores, split_words


def condense(
    texts: Sequence[str], sentence_starts: Ragged, tokenizer: Tokenizer, max_tokens: int, long_documents: str
) -> tuple[Ragged, np.ndarray]:
    """Encode n texts as n rows of int32, at most ``max_tokens`` >= 1 ids each, and mark longer ones: ``(n,)`` bool.

    ``first`` keeps the first ``max_tokens`` tokens of a longer text. ``principal`` keeps its principal sentences, in
    the order of the text: they are chosen by descending score, the earlier of equal ones first, as long as they fit. If
    not even one fits, the best is cut. ``sentence_starts`` has n rows, the characters at which sentences begin,
    ascending from 0; tokens are counted, and sentences cut out, in the encoder's ids of the whole text.
    """
    ids = tokenizer.encode(texts)
    longer = ids.lengths > max_tokens
    rows = [ids[row][:max_tokens] for row in range(len(ids))]
    chosen = np.flatnonzero(longer).tolist() if long_documents == "principal" else []
    if chosen:
        long_texts = [texts[row] for row in chosen]
        scores = sentence_scores(split_words(long_texts, sentence_starts.take(chosen)))
        whole, starts = tokenizer.encode_with_starts(long_texts)
        for i, row in enumerate(chosen):
            sentences = byte_offsets(long_texts[i], sentence_starts[row])
            # edges: (sentences + 1,) tokens; a token belongs to the sentence in which it begins
            edges = np.append(np.searchsorted(starts[i], sentences), len(whole[i]))
            kept = _choose(np.argsort(-scores[i], kind="stable"), np.diff(edges), max_tokens)
            rows[row] = whole[i][np.repeat(kept, np.diff(edges))][:max_tokens]
    return Ragged.from_rows(rows, np.int32), longer


@compiled
def _choose(order: np.ndarray, sizes: np.ndarray, max_tokens: int) -> np.ndarray:
    """``(sentences,)`` bool: sentences that fit into ``max_tokens``, taken in ``order``; else the first with tokens."""
    kept = np.zeros(len(sizes), np.bool_)
    left = max_tokens
    for sentence in order:
        if sizes[sentence] <= left:
            kept[sentence] = True
            left -= sizes[sentence]
    if left == max_tokens:
        for sentence in order:
            if sizes[sentence]:
                kept[sentence] = True
                break
    return kept
