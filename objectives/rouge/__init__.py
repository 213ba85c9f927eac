"""Compiled ROUGE for batches of texts: letters -> words -> n-grams -> scores, one module each."""

from objectives.rouge.pairs import MEASURES, pair_scores
from objectives.rouge.scores import (
    COUNTS,
    PRECISIONS,
    TIES,
    cluster_scores,
    select_greedily,
    sentence_scores,
    window_scores,
)
from objectives.rouge.words import WORDS, Words, split_words, token_words

__all__ = [
    "COUNTS",
    "MEASURES",
    "PRECISIONS",
    "TIES",
    "WORDS",
    "Words",
    "cluster_scores",
    "pair_scores",
    "select_greedily",
    "sentence_scores",
    "split_words",
    "token_words",
    "window_scores",
]
