"""Sentence selection: gap-sentence strategies over batches of texts.

Sentences are scored against their *text*: a part of a row, or the whole row. Source: Zhang et al. 2020 (PEGASUS),
section 3.1, and the published code. Four of its six strategies use individual scores; the other two choose sentences
jointly (greedily, and as windows), with the scores of ``objectives.rouge.sentence_scores``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from corpora.compiled import compiled
from corpora.keyed import id_keys, philox_blocks
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.masks import IN_SOURCE, IN_TARGET, MaskBatch
from objectives.draws.independent import normal


@dataclass(frozen=True, slots=True)
class Sentences:
    """The sentences of the texts of n rows, int64; each has at least one token and is inside one part."""

    starts: np.ndarray  # (s,) in tokens from the start of the row
    lengths: np.ndarray  # (s,) in tokens
    texts: np.ndarray  # (t + 1,): text i has sentences ``texts[i]:texts[i + 1]``
    rows: np.ndarray  # (n + 1,): row i has texts ``rows[i]:rows[i + 1]``

    @property
    def sizes(self) -> np.ndarray:
        """Number of sentences of each text, ``(t,)`` int64."""
        return np.diff(self.texts)

    @property
    def row_of_text(self) -> np.ndarray:
        """Row of each text, ``(t,)`` int64."""
        return np.repeat(np.arange(len(self.rows) - 1), np.diff(self.rows))

    @property
    def text_of_sentence(self) -> np.ndarray:
        """Text of each sentence, ``(s,)`` int64."""
        return np.repeat(np.arange(len(self.texts) - 1), self.sizes)


@dataclass(frozen=True, slots=True)
class Choice:
    """Chosen sentences, best first: one row per text, or per corpus row after ``order_in_rows``."""

    numbers: Ragged  # int64, indices into the arrays of ``Sentences``
    scores: Ragged  # float, the score by which each was chosen


@dataclass(frozen=True, slots=True)
class Draws:
    """Four random 64-bit words for every text and every sentence."""

    texts: np.ndarray  # (t, 4) uint64
    sentences: np.ndarray  # (s, 4) uint64


def find_sentences(batch: SequenceBatch, scope: str) -> Sentences:
    """Find the sentences of each part (scope ``document``) or row (``sequence``); none crosses a part boundary."""
    documents, sentences = batch.document_starts.compact(), batch.sentence_starts.compact()
    most = len(documents.values) + len(sentences.values)
    starts, lengths = np.empty((2, most), np.int64)
    parts = np.empty(len(documents.values) + 1, np.int64)  # the first sentence of each
    borders = (documents.values.astype(np.int64), documents.offsets)
    inner = (sentences.values.astype(np.int64), sentences.offsets)
    count = _find(batch.tokens.lengths, borders, inner, starts, lengths, parts)
    rows = documents.offsets
    if scope == "sequence":
        parts, rows = parts[rows], np.arange(len(batch) + 1)
    return Sentences(starts[:count], lengths[:count], parts, rows)


@compiled
def _find(
    sizes: np.ndarray, documents: tuple, sentences: tuple, starts: np.ndarray, lengths: np.ndarray, parts: np.ndarray
) -> int:
    count = 0
    for row in range(len(sizes)):
        at, stop = sentences[1][row], sentences[1][row + 1]
        for part in range(documents[1][row], documents[1][row + 1]):
            parts[part] = count
            begin = documents[0][part]
            end = documents[0][part + 1] if part + 1 < documents[1][row + 1] else sizes[row]
            # The first sentence starts with the part; sentences without tokens are dropped.
            while begin < end:
                while at < stop and sentences[0][at] <= begin:
                    at += 1
                after = min(sentences[0][at], end) if at < stop else end
                starts[count], lengths[count] = begin, after - begin
                count += 1
                begin = after
    parts[-1] = count
    return count


def draw(key: bytes, batch: SequenceBatch, sentences: Sentences) -> Draws:
    """Draw words for each text from ``numpy.random.Philox`` with the key of (sequence id, number of the text).

    The first four 64-bit words belong to the text, the next four to its first sentence, and so on. So a draw depends
    neither on the other texts nor on the selection.
    """
    numbers = np.arange(len(sentences.texts) - 1) - np.repeat(sentences.rows[:-1], np.diff(sentences.rows))
    names = batch.ids()
    pairs = zip(sentences.row_of_text.tolist(), numbers.tolist(), strict=True)
    keys = id_keys(key, (names[row] + number.to_bytes(4, "little") for row, number in pairs))
    blocks = np.empty((len(sentences.starts) + len(keys), 4), np.uint64)
    first = sentences.texts[:-1] + np.arange(len(keys))  # the texts' own blocks
    _draw(keys, sentences.texts, blocks)
    return Draws(blocks[first], np.delete(blocks, first, axis=0))


@compiled
def _draw(keys: np.ndarray, texts: np.ndarray, blocks: np.ndarray) -> None:
    for text in range(len(keys)):
        philox_blocks(
            keys[text, 0], keys[text, 1], np.uint64(1), blocks[texts[text] + text : texts[text + 1] + text + 1]
        )


def uniform(bits: np.ndarray) -> np.ndarray:
    """Convert the upper 53 bits of uint64 ``bits`` to float64 numbers in [0, 1)."""
    return (bits >> np.uint64(11)) * 2.0**-53


def pick_counts(sizes: np.ndarray, ratios: np.ndarray | float, rounding: str, precision: str) -> np.ndarray:
    """Compute the number of sentences to choose from texts of ``sizes``, ``(t,)`` int64: a share, but at least one.

    ``ratios``: a scalar or ``(t,)``. ``precision`` of the product: ``float64``, or ``float32`` as in PEGASUS.
    """
    product = sizes.astype(precision) * np.asarray(ratios).astype(precision)
    whole = np.ceil(product) if rounding == "up" else np.floor(product)
    return np.minimum(np.maximum(whole, 1), sizes).astype(np.int64)


def most_tokens(sentences: Sentences, picks: np.ndarray) -> np.ndarray:
    """Count the tokens of the longest ``picks[i]`` sentences of each text i, summed per row, ``(n,)`` int64."""
    texts = sentences.text_of_sentence
    longest_first = np.lexsort((-sentences.lengths, texts))
    place = np.arange(len(texts)) - sentences.texts[texts]  # rank of each sentence in its text
    lengths = np.where(place < picks[texts], sentences.lengths[longest_first], 0)
    rows = sentences.row_of_text[texts]
    return np.bincount(rows, lengths, len(sentences.rows) - 1).astype(np.int64)


def with_noise(scores: np.ndarray, bits: np.ndarray, noise: float, precision: str) -> np.ndarray:
    """Multiply scores by ``1 + noise * x``, x normal with mean 0 and standard deviation ``noise``.

    This is PEGASUS's formula, so its setting 0.2 gives factors with a standard deviation of 0.04.

    ``scores``: ``(s,)`` of type ``precision``. ``bits``: ``(s, 4)`` uint64; the first two of each are used.
    """
    share = float(np.asarray(noise, precision))
    return (scores * (1 + share * (share * normal(bits)))).astype(precision)


def choose_best(scores: np.ndarray, sentences: Sentences, picks: np.ndarray, ties: str) -> Choice:
    """Choose the ``picks[i]`` sentences of text i with the highest ``scores``, ``(s,)``."""
    numbers = np.arange(len(scores))
    order = np.lexsort((-numbers if ties == "later" else numbers, -scores, sentences.text_of_sentence))
    # Sorting leaves each text its own range of places, now best first.
    chosen = order[numbers < np.repeat(sentences.texts[:-1] + picks, sentences.sizes)]
    return Choice(Ragged.from_lengths(chosen, picks), Ragged.from_lengths(scores[chosen], picks))


def choose_windows(windows: Ragged, sentences: Sentences, picks: np.ndarray, ties: str) -> Choice:
    """Choose the stretch of ``picks[i]`` sentences of text i with the highest score, first to last sentence.

    ``windows``: rows of float, one per text: the scores of the stretches that start at sentence 0, 1, ...
    """
    texts = np.repeat(np.arange(len(windows)), windows.lengths)
    places = np.arange(len(texts)) - np.repeat(windows.compact().offsets[:-1], windows.lengths)
    scores = windows.compact().values
    # The best window of each text is the last of its windows in this order.
    order = np.lexsort((places if ties == "later" else -places, scores, texts))
    best = order[np.cumsum(windows.lengths)[picks > 0] - 1]
    first = np.zeros(len(picks), np.int64)
    first[picks > 0] = sentences.texts[:-1][picks > 0] + places[best]
    values = np.zeros(len(picks), scores.dtype)
    values[picks > 0] = scores[best]
    numbers = Ragged.from_lengths(np.repeat(first, picks), picks)
    steps = np.arange(len(numbers.values)) - np.repeat(numbers.offsets[:-1], picks)
    return Choice(Ragged(numbers.values + steps, numbers.offsets), Ragged(np.repeat(values, picks), numbers.offsets))


def order_in_rows(choice: Choice, sentences: Sentences, ties: str) -> Choice:
    """Merge the choices of a row's texts: of their next sentences, the one with the highest score comes first.

    Every text keeps its own order, even if its scores rise (greedy choice). ``ties`` decides between texts with equal
    scores.
    """
    numbers, scores = choice.numbers, choice.scores
    texts = np.repeat(np.arange(len(numbers)), numbers.lengths)
    # A sentence comes after those before it in its text, so its key is the lowest score up to it.
    waiting = _lowest_so_far(scores.values, numbers.offsets)
    rows = sentences.row_of_text[texts]
    order = np.lexsort((np.arange(len(texts)), -texts if ties == "later" else texts, -waiting, rows))
    counts = np.bincount(rows, minlength=len(sentences.rows) - 1)
    return Choice(Ragged.from_lengths(numbers.values[order], counts), Ragged.from_lengths(scores.values[order], counts))


def make_chosen_spans(batch: SequenceBatch, sentences: Sentences, choice: Choice) -> tuple[MaskBatch, np.ndarray]:
    """Make a span for each chosen sentence, marked in the source and in the target, with its score and rank.

    ``choice``: chosen sentences of the rows of ``batch``. Returns n mask rows, whose rendered lengths are still 0; and
    ``(k,)`` int64, the sentence of each span.
    """
    chosen = choice.numbers
    ranks = np.arange(len(chosen.values)) - np.repeat(chosen.offsets[:-1], chosen.lengths)
    # Sentences are numbered row after row, so sorting the numbers leaves every row its own range.
    order = np.argsort(chosen.values)
    numbers = chosen.values[order]

    def column(values: np.ndarray, dtype: type) -> Ragged:
        return Ragged(values.astype(dtype), chosen.offsets)

    masks = MaskBatch(
        batch.sequence_ids,
        column(sentences.starts[numbers], np.int32),
        column(sentences.lengths[numbers], np.int32),
        column(np.full(len(numbers), IN_SOURCE | IN_TARGET), np.uint8),
        source_lengths=np.zeros(len(batch), np.int32),
        target_lengths=np.zeros(len(batch), np.int32),
        span_scores=column(choice.scores.values[order], np.float32),
        span_ranks=column(ranks[order], np.int32),
    )
    return masks, numbers


@compiled
def _lowest_so_far(scores: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    lowest = scores.copy()
    for text in range(len(offsets) - 1):
        for i in range(offsets[text] + 1, offsets[text + 1]):
            lowest[i] = min(lowest[i], lowest[i - 1])
    return lowest


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


def count_spaced_words(texts: Sequence[str], starts: Ragged) -> np.ndarray:
    """Count the words between white space of each sentence of n texts, ``(s,)`` int64."""
    rows = np.repeat(np.arange(len(texts)), starts.lengths).tolist()
    places = zip(rows, starts.values.tolist(), sentence_ends(texts, starts).tolist(), strict=True)
    return np.array([len(texts[row][begin:end].split()) for row, begin, end in places], np.int64)


def _bounds(sentences: Sentences) -> tuple[np.ndarray, np.ndarray]:
    """Return the first token of each text in its row, and its end, ``(t,)`` int64 each; 0 and 0 for an empty text."""
    first, last = np.zeros((2, len(sentences.sizes)), np.int64)
    filled = sentences.sizes > 0
    first[filled] = sentences.starts[sentences.texts[:-1][filled]]
    final = sentences.texts[1:][filled] - 1
    last[filled] = sentences.starts[final] + sentences.lengths[final]
    return first, last
