"""The entity pyramid: selection of sentences by the entities that the documents of a cluster share.

Source: Xiao et al. 2022 (PRIMERA), section 2.2 and algorithm 1, after the pyramid evaluation of summaries (Nenkova and
Passonneau 2004): entities in more documents are more important.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from corpora.storage.ragged import Ragged
from objectives.api.protocol import EntityRecognizer
from objectives.sentences.selection import Choice, Sentences
from objectives.sentences.texts import sentence_ends


@dataclass(frozen=True, slots=True)
class Mentions:
    """Mentions of the entities of n rows; an entity belongs to one row.

    Attributes:
        forms: names of the E entities, row after row, in the order of their first mention.
        entities, sentences, documents: ``(m,)`` int64: entity, sentence and document of each mention, as indices into
            ``forms`` and the arrays of ``Sentences``.
    """

    forms: Sequence[str]
    entities: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray


def entity_form(mention: str) -> str:
    """Normalise a mention of an entity: its words without case, leading ``the`` and trailing ``'s``.

    ``"the  White House's"`` and ``"White House"`` are the same entity; ``"US"`` and ``"because"`` are not. The form may
    be empty, for example that of ``"The"``.
    """
    words = mention.casefold().split()
    if words and words[0] == "the":
        del words[0]
    if words and words[-1].endswith(("'s", "’s")):
        words[-1] = words[-1][:-2]
    return " ".join(words).strip()


def find_mentions(texts: Sequence[str], starts: Ragged, sentences: Sentences, recognizer: EntityRecognizer) -> Mentions:
    """Find the mentions in all documents of rows with several documents, with one call of the recognizer.

    A mention belongs to the sentence in which it starts.
    """
    ends = sentence_ends(texts, starts)
    several = np.repeat(np.diff(sentences.rows) > 1, np.diff(sentences.rows))
    documents = np.flatnonzero(several & (sentences.sizes > 0))
    begins = starts.values[sentences.texts[documents]]
    stops = ends[sentences.texts[documents + 1] - 1]
    rows = sentences.row_of_text[documents].tolist()
    pieces = [texts[row][begin:stop] for row, begin, stop in zip(rows, begins.tolist(), stops.tolist(), strict=True)]
    numbers: dict[tuple[int, str], int] = {}
    entities: list[int] = []
    places, counts = [np.empty(0, np.int64)], []
    mentions = recognizer.find(pieces)
    for document, row, piece, begin, spans in zip(documents.tolist(), rows, pieces, begins, mentions, strict=True):
        forms = [entity_form(piece[first:stop]) for first, stop in spans.tolist()]
        named = np.array([form != "" for form in forms], bool)
        entities += [numbers.setdefault((row, form), len(numbers)) for form in forms if form]
        first_sentence, stop_sentence = sentences.texts[document], sentences.texts[document + 1]
        local_starts = starts.values[first_sentence:stop_sentence]
        places.append(first_sentence + np.searchsorted(local_starts, begin + spans[named, 0], "right") - 1)
        counts.append(int(named.sum()))
    return Mentions(
        [form for _, form in numbers],
        np.array(entities, np.int64),
        np.concatenate(places),
        np.repeat(documents, counts),
    )


def choose_pyramid(
    scores: np.ndarray, mentions: Mentions, sentences: Sentences, picks: np.ndarray, ties: str
) -> tuple[Choice, np.ndarray]:
    """Choose the best sentence of each entity that several documents mention, by decreasing number of documents.

    The best sentence is the one with the highest score above 0 among those that mention the entity, the earliest of
    equal ones; it may already be chosen. After all entities, the sentences with the highest scores follow, the earliest
    of equal ones first.

    Returns the sentences of each row in the order of choice, and the entity for which each sentence was chosen, or E if
    for none, ``(s,)`` int64.

    Args:
        scores: ``(s,)`` float64.
        picks: ``(n,)`` int64, number of sentences to choose in each row.
        ties: order of entities in equally many documents: the ``earlier`` or the ``later`` first mention comes first.
    """
    row_of_sentence = sentences.text_of_sentence
    numbers = np.arange(len(scores))
    entities = np.arange(len(mentions.forms))
    # frequency: (E,), documents that mention an entity
    pairs = np.unique(np.stack([mentions.entities, mentions.documents]), axis=1)
    frequency = np.bincount(pairs[0], minlength=len(entities))
    # best: (E,), the first mention of each entity in the order of scores
    order = np.lexsort((mentions.sentences, -scores[mentions.sentences], mentions.entities))
    best = mentions.sentences[order[np.searchsorted(mentions.entities[order], entities)]]
    shared = entities[(frequency > 1) & (scores[best] > 0)]
    tie = -shared if ties == "later" else shared
    ordered = shared[np.lexsort((tie, -frequency[shared], row_of_sentence[best[shared]]))]
    added, turns = np.unique(best[ordered], return_index=True)
    turn, entity = np.full(len(scores), len(ordered)), np.full(len(scores), len(entities))
    turn[added], entity[added] = turns, ordered[turns]
    order = np.lexsort((numbers, -scores, turn, row_of_sentence))
    # Sorting leaves each row its own range of places, now in the order of choice.
    chosen = order[numbers < np.repeat(sentences.texts[:-1] + picks, sentences.sizes)]
    return Choice(Ragged.from_lengths(chosen, picks), Ragged.from_lengths(scores[chosen], picks)), entity
