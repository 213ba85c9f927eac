"""Named entities: recognition with spaCy, and the pyramid, which selects sentences by the entities of a cluster.

Source of the pyramid: Xiao et al. 2022 (PRIMERA), section 2.2 and algorithm 1, after the pyramid evaluation of
summaries (Nenkova and Passonneau 2004): entities in more documents are more important.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from corpora.errors import FarspanError, from_extra
from corpora.storage.ragged import Ragged
from objectives.api.protocol import EntityRecognizer
from objectives.sentences.selection import Choice, Sentences, sentence_ends

# Characters. Memory grows with the text, and models find fewer names towards the end of a long text.
LONGEST_PIECE = 50_000
# Characters without white space between them: spaCy's English tokenizer takes quadratic time for a run of quotes.
LONGEST_RUN = 1_000
PIECES_AT_ONCE = 16  # more is no faster and takes more memory

_unbroken = re.compile(rf"\S{{{LONGEST_RUN}}}")
_one_thread = threading.Lock()  # a pipeline's vocabulary is not thread-safe


@dataclass(frozen=True)
class SpacyRecognizer:
    """An ``EntityRecognizer`` (objectives/api/protocol.py) over an installed spaCy model, loaded once per process.

    Texts go through ``nlp.pipe``, with only the components that find entities. A text of more than ``LONGEST_PIECE``
    characters, or of ``LONGEST_RUN`` without white space, is processed in pieces. The entities of a text do not depend
    on the other texts, and words that texts add to the vocabulary are dropped after each call.
    """

    model: str = "en_core_web_sm"  # an installed model, or its folder
    labels: tuple[str, ...] | None = None  # kinds of entities to find, e.g. ("PERSON", "ORG"); None for all

    def __post_init__(self) -> None:
        pipeline = _pipeline(self.model)
        known = {label for kinds in pipeline.pipe_labels.values() for label in kinds}
        if unknown := sorted(set(self.labels or ()) - known):
            raise FarspanError(
                f"spaCy model {self.model!r} finds no entities of kind {', '.join(unknown)}; "
                f"its kinds: {', '.join(sorted(known))}"
            )

    @property
    def name(self) -> str:
        """Model, model version and spaCy version."""
        import spacy

        meta = _pipeline(self.model).meta
        return f"{meta['lang']}_{meta['name']} {meta['version']}, spaCy {spacy.__version__}"

    def find(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Find the entities of each text: first character and end, ``(k, 2)`` int64, ascending and disjoint."""
        pieces = ((piece, (number, start)) for number, text in enumerate(texts) for start, piece in _pieces(text))
        result: list[list[tuple[int, int]]] = [[] for _ in texts]
        pipeline = _pipeline(self.model)
        with _one_thread, pipeline.memory_zone():
            for document, (number, start) in pipeline.pipe(pieces, as_tuples=True, batch_size=PIECES_AT_ONCE):
                result[number] += [
                    (start + entity.start_char, start + entity.end_char)
                    for entity in document.ents
                    if self.labels is None or entity.label_ in self.labels
                ]
        return [np.array(spans, np.int64).reshape(-1, 2) for spans in result]


@lru_cache(maxsize=4)
def _pipeline(model: str) -> Any:
    """Load a model with only the components that write ``doc.ents`` and the layers they depend on."""
    with from_extra("spacy", "finding the names in a text"):
        import spacy  # takes seconds to import, and few objectives need it

    try:
        pipeline = spacy.load(model)
    except (OSError, ValueError) as error:
        installed = ", ".join(sorted(spacy.util.get_installed_models())) or "none"
        is_folder = os.path.sep in model or os.path.exists(model)
        cure = (
            "give the folder of a saved pipeline" if is_folder else f"install it by `python -m spacy download {model}`"
        )
        raise FarspanError(
            f"spaCy cannot load the model {model!r}; {cure}, or name another one (installed: {installed}). "
            f"spaCy says: {error}"
        ) from error
    names = list(pipeline.pipe_names)
    finders = {name for name in names if "doc.ents" in pipeline.get_pipe_meta(name).assigns}
    if not finders:
        raise FarspanError(
            f"spaCy model {model!r} finds no entities: its components are {', '.join(names) or 'none'}; name a model "
            "with a component ner, e.g. en_core_web_sm"
        )
    for name in names:
        listening = set(getattr(pipeline.get_pipe(name), "listening_components", ()))
        if name not in finders and not listening & finders:
            pipeline.remove_pipe(name)
    return pipeline


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield (first character, piece) of a text, which is cut at a line end or a space, or inside a long run."""
    start = 0
    for end in [*(run.end() for run in _unbroken.finditer(text)), len(text)]:
        while start < end:
            stop = min(start + LONGEST_PIECE, end)
            if stop < end:
                line, space = (text.rfind(edge, start + LONGEST_PIECE // 2, stop) for edge in "\n ")
                stop = line if line >= 0 else space if space >= 0 else stop
            yield start, text[start:stop]
            start = stop


@dataclass(frozen=True, slots=True)
class Mentions:
    """Mentions of the entities of n rows; an entity belongs to one row.

    ``entities``, ``sentences``, ``documents``: ``(m,)`` int64, indices into ``forms`` and the arrays of ``Sentences``.
    """

    forms: Sequence[str]  # names of the E entities, row after row, in the order of their first mention
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

    ``scores``: ``(s,)`` float64. ``picks``: ``(n,)`` int64, number of sentences to choose in each row. ``ties``: of
    entities in equally many documents, the ``earlier`` or the ``later`` first mention comes first. Returns the
    sentences of each row in the order of choice, and the entity for which each sentence was chosen, or E if for none,
    ``(s,)`` int64.
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
