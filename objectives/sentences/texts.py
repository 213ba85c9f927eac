"""The texts of rows with their sentence starts: as strings, or as token ids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from corpora.tokenizers.protocol import Tokenizer
from objectives.sentences.selection import Sentences

_SPACES = np.array([chr(code).isspace() for code in range(0x3002)])  # the last one, U+3001, is none


def token_texts(batch: SequenceBatch, sentences: Sentences) -> tuple[Ragged, Ragged]:
    """Return the ids of each text, and the first token of each of its sentences, int64."""
    first, last = _bounds(sentences)
    tokens = batch.tokens.cut(sentences.row_of_text, first, last - first)
    return tokens, Ragged(sentences.starts - np.repeat(first, sentences.sizes), sentences.texts)


def decode_texts(batch: SequenceBatch, sentences: Sentences, tokenizer: Tokenizer) -> tuple[list[str], Ragged]:
    """Decode each text to a string; return also the first character of each of its sentences, int64.

    A row is decoded as a whole, so a text in the middle of a row keeps its leading space.
    """
    first, last = _bounds(sentences)
    texts: list[str] = []
    starts = np.empty(len(sentences.starts), np.int64)
    for row in range(len(batch)):
        text, characters = tokenizer.decode_with_offsets(batch.tokens[row])
        characters = np.append(characters, len(text))
        chosen = slice(sentences.rows[row], sentences.rows[row + 1])
        begins, ends = characters[first[chosen]], characters[last[chosen]]
        texts += [text[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        inside = slice(sentences.texts[chosen.start], sentences.texts[chosen.stop])
        starts[inside] = characters[sentences.starts[inside]] - np.repeat(begins, sentences.sizes[chosen])
    return texts, Ragged(starts, sentences.texts)


def sentence_ends(texts: Sequence[str], starts: Ragged) -> np.ndarray:
    """Return the end of each sentence, ``(s,)`` int64, in characters from the start of its text."""
    ends = np.empty(len(starts.values), np.int64)
    ends[:-1] = starts.values[1:]
    filled = starts.lengths > 0
    ends[starts.offsets[1:][filled] - 1] = np.array([len(text) for text in texts], np.int64)[filled]
    return ends


def spaced_words(texts: Sequence[str], starts: Ragged) -> np.ndarray:
    """Count the words between white space, ``len(sentence.split())``, of each sentence of n texts, ``(s,)`` int64."""
    counts = [np.empty(0, np.int64)]
    for row, text in enumerate(texts):
        space = _SPACES[np.minimum(np.frombuffer(text.encode("utf-32-le"), np.uint32), len(_SPACES) - 1)]
        before = np.append(True, space[:-1]) if len(text) else space
        before[starts[row][starts[row] < len(text)]] = True
        words = np.append(0, np.cumsum(before & ~space))  # words that start before each character
        counts.append(np.diff(words[np.append(starts[row], len(text))]))
    return np.concatenate(counts)


def _bounds(sentences: Sentences) -> tuple[np.ndarray, np.ndarray]:
    """Return the first token of each text in its row, and its end, ``(t,)`` int64 each; 0 and 0 for an empty text."""
    first, last = np.zeros((2, len(sentences.sizes)), np.int64)
    filled = sentences.sizes > 0
    first[filled] = sentences.starts[sentences.texts[:-1][filled]]
    final = sentences.texts[1:][filled] - 1
    last[filled] = sentences.starts[final] + sentences.lengths[final]
    return first, last
