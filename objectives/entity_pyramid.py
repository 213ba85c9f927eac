"""Entity pyramid: hides the sentences about entities that the documents of a cluster share.

Source: Xiao et al. 2022 (PRIMERA), section 2.2, and the published code (utils/pretrain_preprocess.py and
utils/compute_scores.py). The preset ``primera`` chooses the same sentences by the same scores, except for differences
that docs/objectives.md lists; 95 % of the sentences agree.

Documents are shortened when the corpus is built (``farspan corpus related --budget equal``), not here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.masks import IN_SOURCE, IN_TARGET, VISIBLE, MaskBatch
from objectives.api.options import check, check_choice, check_flag, check_whole, equipped, is_number, normalize
from objectives.api.protocol import EntityRecognizer, Tools
from objectives.api.special_tokens import BEGIN, DOCUMENT_SEPARATOR, MASK, SENTENCE_MASK
from objectives.rendering.layout import Layout
from objectives.rendering.marked import MarkedSpans
from objectives.rendering.render import rendered_lengths
from objectives.rouge.sentence_scores import TIES, cluster_scores, sentence_scores
from objectives.rouge.words import WORDS, split_words
from objectives.sentences.entities import SpacyRecognizer, choose_pyramid, find_mentions
from objectives.sentences.selection import (
    Sentences,
    count_spaced_words,
    decode_texts,
    draw,
    find_sentences,
    make_chosen_spans,
    most_tokens,
    pick_counts,
)
from objectives.sentences.spans import longest_texts, within_target


@dataclass(frozen=True)
class EntityPyramid(MarkedSpans):
    """Objective ``entity_pyramid``.

    The documents of a row are one cluster. A sentence's score is its Cluster ROUGE: over the other documents, the sum
    of the mean F1 of ROUGE-1, ROUGE-2 and ROUGE-L against the whole document. In a row of one document, it is the
    ROUGE-1 F1 against the rest (``principal_sentences``, strategy ``ind``). Entities that several documents mention are
    processed by decreasing number of documents, and each adds its best sentence. The best remaining sentences follow
    until there are enough.

    Attributes:
        ratio: share of a row's sentences to choose, at least one.
        visible: share of the chosen sentences that stay visible in the source, chosen at random; each of the others is
            replaced by one mask token. The target has all of them.
        min_words: sentences with fewer words score 0; words are separated by white space, or with ``words=unicode``
            as defined there.
        words: ``rouge`` (runs of ASCII letters and digits) or ``unicode`` (words of any script).
        stem: compare words by their Porter stems; for English.
        entity_ties: order of entities in equally many documents: the ``earlier`` or the ``later`` first mention in the
            row comes first.
        model: name of an installed spaCy model, or its folder; not used if ``Tools`` has a recognizer.
        entity_labels: kinds of entities to find; None for all, including dates and numbers.
        mask_token: ``<mask>`` or ``<sent-mask>``.
        begin: True if source and target start with ``<bos>``; both always end with ``<eos>``. In the source,
            ``<doc-sep>`` follows every document.
        target_length: decoder positions, including begin and end; None for as many as needed. Chosen sentences enter
            the target in their order of choice if they still fit; if none fits, the first is cut. The others stay in
            the source.
        global_attention: ``none``, ``bos``, ``separators`` or ``masked``.
    """

    ratio: float = 0.3
    visible: float = 0.5
    min_words: int = 5
    words: str = "rouge"
    stem: bool = True
    entity_ties: str = "earlier"
    model: str = "en_core_web_sm"
    entity_labels: Sequence[str] | None = None
    mask_token: str = MASK
    begin: bool = True
    target_length: int | None = None
    global_attention: str = "separators"
    _tools: Tools | None = field(default=None, init=False, repr=False, compare=False)

    name: ClassVar[str] = "entity_pyramid"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # The paper and the defaults of utils/pretrain_preprocess.py: input 4,096, output 1,024.
        "primera": {"ratio": 0.3, "visible": 0.5, "entity_ties": "later", "target_length": 1024},
    }

    def __post_init__(self) -> None:
        check(self, "ratio", is_number(self.ratio) and 0 < self.ratio <= 1, "a number above 0 up to 1")
        check(self, "visible", is_number(self.visible) and 0 <= self.visible <= 1, "a number from 0 to 1")
        check_whole(self, "min_words", least=0)
        check_choice(self, "words", *WORDS)
        check_flag(self, "stem", "begin")
        check_choice(self, "entity_ties", *TIES)
        check(self, "model", isinstance(self.model, str) and self.model != "", "the name of a spaCy model")
        labels: Any = self.entity_labels
        listed = isinstance(labels, list | tuple) and len(labels) > 0 and all(isinstance(name, str) for name in labels)
        check(self, "entity_labels", labels is None or listed, "a list of kinds such as PERSON, or null")
        check_choice(self, "mask_token", MASK, SENTENCE_MASK)
        check_whole(self, "target_length", least=self.layout.ends + 1, null=True)
        check_choice(self, "global_attention", "none", "bos", "separators", "masked")
        kinds = tuple(sorted(set(labels))) if listed else None
        normalize(self, ratio=float(self.ratio), visible=float(self.visible), entity_labels=kinds)

    @property
    def tools(self) -> dict[str, str]:
        """Model and version of the recognizer."""
        recognizer = self._tools.recognizer if self._tools else None
        return {"recognizer": recognizer.name} if recognizer else {}

    def with_tools(self, tools: Tools) -> EntityPyramid:
        """Return a copy that can decode rows and find entities, by ``tools.recognizer`` or its own ``model``."""
        recognizer = tools.recognizer or SpacyRecognizer(self.model, self.entity_labels)  # type: ignore[arg-type]
        return equipped(self, replace(tools, recognizer=recognizer))

    @property
    def layout(self) -> Layout:
        return Layout(begin=BEGIN if self.begin else None, after=DOCUMENT_SEPARATOR)

    @property
    def marker(self) -> str:
        return self.mask_token

    def longest(self, batch: SequenceBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return upper bounds on source and target lengths over all draws, ``(n,)`` int64 each."""

        def most() -> np.ndarray:
            sentences = find_sentences(batch, "sequence")
            return most_tokens(sentences, pick_counts(sentences.sizes, self.ratio, "down", "float64"))

        return longest_texts(batch, self.layout, self.target_length, most)

    def mask(self, batch: SequenceBatch, key: bytes) -> MaskBatch:
        """Choose the sentences of n rows, by (key, options, sequence id, text) of the row."""
        tokenizer, recognizer = self._list_needed_tools()
        sentences, documents = find_sentences(batch, "sequence"), find_sentences(batch, "document")
        texts, starts = decode_texts(batch, sentences, tokenizer)
        scores = self._scores(texts, starts, documents)
        mentions = find_mentions(texts, starts, documents, recognizer)
        picks = pick_counts(sentences.sizes, self.ratio, "down", "float64")
        choice, entities = choose_pyramid(scores, mentions, sentences, picks, self.entity_ties)
        masks, numbers = make_chosen_spans(batch, sentences, choice)
        if self.target_length is not None:
            masks = within_target(masks, self.target_length - self.layout.ends, "skip")
            numbers = _numbers_of(masks, sentences)
        offsets = masks.span_starts.offsets
        shown = _lowest(draw(key, batch, sentences).sentences[numbers, 0], offsets, self.visible)
        flags = np.where(shown, VISIBLE | IN_TARGET, IN_SOURCE | IN_TARGET).astype(np.uint8)
        names = pa.array([*mentions.forms, ""], pa.string()).take(pa.array(entities[numbers]))
        masks = replace(
            masks,
            span_flags=Ragged(flags, offsets),
            span_labels=pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), names),
        )
        source, target = rendered_lengths(batch, masks, self.layout, sentinels=False)
        return replace(masks, source_lengths=source, target_lengths=target)

    def _list_needed_tools(self) -> tuple[Tokenizer, EntityRecognizer]:
        if self._tools is None or self._tools.recognizer is None:
            raise FarspanError(
                f"{self.name}: entities are found in text, which needs a tokenizer and a recognizer; pass them by "
                "equip(objective, Tools(tokenizer))"
            )
        return self._tools.tokenizer, self._tools.recognizer

    def _scores(self, texts: Sequence[str], starts: Ragged, documents: Sentences) -> np.ndarray:
        """Score all sentences, ``(s,)`` float64."""
        words = split_words(texts, starts, words=self.words, stem=self.stem)
        counts = np.diff(documents.rows)
        firsts = documents.texts[:-1] - np.repeat(documents.texts[documents.rows[:-1]], counts)
        clustered = cluster_scores(words, Ragged(firsts, documents.rows)).values
        scores = np.where(np.repeat(counts > 1, starts.lengths), clustered, sentence_scores(words).values)
        lengths = count_spaced_words(texts, starts) if self.words == "rouge" else words.ids.lengths
        return np.where(lengths < self.min_words, 0.0, scores)


def _numbers_of(masks: MaskBatch, sentences: Sentences) -> np.ndarray:
    """Find the sentences at the starts of spans, as indices into ``sentences``."""
    starts, texts = masks.span_starts, sentences.text_of_sentence
    rows = np.repeat(np.arange(len(masks)), starts.lengths)
    return np.searchsorted((texts << 32) + sentences.starts, (rows << 32) + starts.values)


def _lowest(bits: np.ndarray, offsets: np.ndarray, share: float) -> np.ndarray:
    """Return ``(k,)`` bool: True for the lowest ``share`` of each row of random bits, rounded down."""
    sizes = np.diff(offsets)
    rows, places = np.repeat(np.arange(len(sizes)), sizes), np.arange(len(bits))
    lowest = np.zeros(len(bits), bool)
    # Sorting leaves each row its own range of places, now lowest first.
    lowest[np.lexsort((bits, rows))] = places < np.repeat(
        offsets[:-1] + np.floor(sizes * share).astype(np.int64), sizes
    )
    return lowest
