"""``SpanObjective``, a base class for objectives of your own: a subclass only chooses the spans to hide.

``docs/objectives.md``, *Your own*, has an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from types import NoneType, UnionType
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from corpora.errors import FarspanError
from corpora.keyed import id_keys
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.masks import IN_SOURCE, IN_TARGET, MaskBatch
from objectives.api.options import check, normalize
from objectives.api.protocol import CorpusFacts
from objectives.api.special_tokens import DOCUMENT_SEPARATOR, SpecialTokens
from objectives.rendering.layout import Layout
from objectives.rendering.marked import MarkedSpans
from objectives.rendering.render import rendered_lengths

_PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


@dataclass(frozen=True, eq=False)
class Row:
    """One corpus row, read-only.

    Attributes:
        tokens: ``(n,)`` ids of its text.
        sentences, documents: ``(s, 2)`` and ``(d, 2)`` int64, start and length of each in ``tokens``, in order and
            without gaps; every document start is a sentence start.
        sequence_id: 16 bytes.
    """

    tokens: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    sequence_id: bytes

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class SpanObjective(MarkedSpans, ABC):
    """An objective that hides spans of text. A subclass is a frozen dataclass whose fields are its options.

    A marker replaces each span in the source, and the target has its text. The types of options (int, float, bool or
    str, possibly None) are checked on construction; ``__post_init__`` may check more after ``super().__post_init__()``.

    Attributes:
        name: name of its entry point.
        presets: name -> options.
        marker: the special token that replaces every hidden span, e.g. ``<sent-mask>``; None for numbered sentinels in
            source and target.
        sentinels: number of sentinels to reserve: the maximum number of spans in a row, counting the pieces of spans
            that are cut at document boundaries.
        layout: special tokens around the text.
        global_attention: ``none``, ``bos``, ``separators`` or ``masked``.
    """

    name: ClassVar[str]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    marker: ClassVar[str | None] = None
    sentinels: ClassVar[int] = 100
    layout: ClassVar[Layout] = Layout(between=DOCUMENT_SEPARATOR)
    global_attention: ClassVar[str] = "none"  # type: ignore[misc]

    @abstractmethod
    def choose(self, row: Row, rng: np.random.Generator) -> Iterable[tuple[int, int]]:
        """Return start and length, in tokens, of each span to hide, in any order; spans must not overlap.

        A span that crosses a document boundary is cut there.

        The choice must depend only on ``row``, the options and ``rng``, the row's own random generator, which is keyed
        by seed, options and sequence id.
        """

    def most_hidden(self, lengths: np.ndarray) -> np.ndarray | None:
        """Return an upper bound on the tokens that ``choose`` hides in rows of ``lengths`` tokens, ``(n,)`` integers.

        With it, training that draws masks checks before its first step that every target fits. With None (the default),
        training warns that it cannot check.
        """
        return None

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            hint = hints[field.name]
            kinds = set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}
            if field.init and kinds <= {*_PLAIN, NoneType}:
                _check_kind(self, field.name, kinds)

    def validate(self, facts: CorpusFacts) -> SpecialTokens:
        """Check that a row has room for the layout, and number the special tokens."""
        self.layout.check(self.name, facts)
        names = [*self.layout.names, *([self.marker] if self.marker else [])]
        count = 0 if self.marker else min(self.sentinels, facts.max_tokens)
        return SpecialTokens.append(facts.vocab_size, facts.owned_tokens, names, count)

    def mask(self, batch: SequenceBatch, key: bytes) -> MaskBatch:
        """Choose the spans of n rows, independently of each other; errors name the row."""
        generators = (np.random.Generator(np.random.Philox(key=row_key)) for row_key in id_keys(key, batch.ids()))
        spans = [self._spans(_row(batch, number), rng) for number, rng in enumerate(generators)]
        self._check_most(batch, np.array([row[:, 1].sum() for row in spans], np.int64))
        starts = Ragged.from_rows([row[:, 0] for row in spans], np.int32)
        unknown = np.zeros(len(batch), np.int32)
        masks = MaskBatch(
            batch.sequence_ids,
            starts,
            Ragged.from_rows([row[:, 1] for row in spans], np.int32),
            Ragged(np.full(len(starts.values), IN_SOURCE | IN_TARGET, np.uint8), starts.offsets),
            source_lengths=unknown,
            target_lengths=unknown,
        )
        source, target = rendered_lengths(batch, masks, self.layout, sentinels=self.marker is None)
        return replace(masks, source_lengths=source, target_lengths=target)

    def longest(self, batch: SequenceBatch) -> tuple[np.ndarray, np.ndarray] | None:
        """Return upper bounds on source and target lengths, ``(n,)`` int64 each; None if ``most_hidden`` returns None.

        A piece of a span has at least one token and one marker, so no source is longer than its text.
        """
        tokens = batch.tokens.lengths.astype(np.int64)
        hidden = self.most_hidden(tokens)
        if hidden is None:
            return None
        hidden = np.minimum(hidden, tokens)
        markers = np.minimum(hidden, self.sentinels) if self.marker is None else 0
        targets = np.where(hidden > 0, hidden + markers + self.layout.ends, 0)
        return tokens + self.layout.around(batch.document_starts.lengths.astype(np.int64)), targets

    def _check_most(self, batch: SequenceBatch, hidden: np.ndarray) -> None:
        """Check that the tokens hidden in each row, ``(n,)`` int64, keep to ``most_hidden``."""
        lengths = batch.tokens.lengths.astype(np.int64)
        most = self.most_hidden(lengths)
        if most is None or not (above := hidden > most).any():
            return
        row = int(above.argmax())
        raise FarspanError(
            f"{self.name}: sequence {batch.sequence_ids[row].tobytes().hex()} of {lengths[row]} tokens: choose hid "
            f"{hidden[row]}, but most_hidden says {most[row]}; make it an upper bound, or return None"
        )

    def _spans(self, row: Row, rng: np.random.Generator) -> np.ndarray:
        """Return checked starts and lengths, ``(k, 2)`` int64, ascending and cut at document boundaries."""
        where = f"{self.name}: sequence {row.sequence_id.hex()} of {len(row)} tokens: choose"
        try:
            chosen = self.choose(row, rng)
        except Exception as error:
            error.add_note(where)
            raise
        spans = _as_spans(chosen, where)
        spans = spans[np.argsort(spans[:, 0], kind="stable")]
        starts, stops = spans[:, 0], spans.sum(1)
        for bad, what in (
            (spans[:, 1] < 1, "is empty; leave it out"),
            ((starts < 0) | (stops > len(row)), "is not inside the row"),
            (np.append(False, starts[1:] < stops[:-1]), "overlaps the one before it"),
        ):
            if bad.any():
                raise FarspanError(f"{where} gave span {tuple(spans[bad.argmax()].tolist())}, which {what}")
        spans = _cut(spans, row.documents[:, 0])
        if self.marker is None and len(spans) > self.sentinels:
            raise FarspanError(
                f"{where} gave {len(spans)} spans, counting the pieces of those cut at documents, but "
                f"{self.sentinels} sentinels are reserved; raise `sentinels` of the class, or choose fewer spans"
            )
        return spans


def _check_kind(objective: SpanObjective, option: str, kinds: set[type]) -> None:
    """Check the type of an option; convert an integer to float if a float is expected."""
    value = getattr(objective, option)
    if float in kinds and type(value) is int and int not in kinds:
        value = float(value)
        normalize(objective, **{option: value})
    wanted = [_PLAIN[kind] for kind in _PLAIN if kind in kinds] + ["null"] * (NoneType in kinds)
    check(objective, option, type(value) in kinds, " or ".join(wanted))


def _row(batch: SequenceBatch, number: int) -> Row:
    tokens = batch.tokens[number].view()
    sentences, documents = (
        _stretches(starts[number], len(tokens)) for starts in (batch.sentence_starts, batch.document_starts)
    )
    for column in (tokens, sentences, documents):
        column.flags.writeable = False
    return Row(tokens, sentences, documents, batch.sequence_id(number))


def _stretches(starts: np.ndarray, size: int) -> np.ndarray:
    """Return start and length of the non-empty stretches that start at ``starts``, ``(k, 2)`` int64."""
    begins = np.unique(starts[starts < size]).astype(np.int64)
    return np.stack([begins, np.diff(begins, append=size)], 1)


def _as_spans(chosen: Any, where: str) -> np.ndarray:
    """Convert the result of ``choose`` to ``(k, 2)`` int64."""
    try:
        spans = np.array(list(chosen))
    except (TypeError, ValueError):
        spans = np.empty(1)
    if spans.shape == (0,):
        return np.empty((0, 2), np.int64)
    if spans.ndim != 2 or spans.shape[1] != 2 or spans.dtype.kind not in "iu":
        raise FarspanError(f"{where} gave {chosen!r:.200}; give pairs of whole numbers (start, length)")
    return spans.astype(np.int64)


def _cut(spans: np.ndarray, borders: np.ndarray) -> np.ndarray:
    """Cut ascending spans ``(k, 2)`` at the ``borders`` inside them."""
    if not len(spans):
        return spans
    starts, stops = spans[:, 0], spans.sum(1)
    holder = np.searchsorted(starts, borders, "right") - 1  # the last span that starts before each border, or -1
    inside = (holder >= 0) & (borders < stops[holder])
    pieces = np.unique(np.concatenate([starts, borders[inside]]))
    ends = stops[np.searchsorted(starts, pieces, "right") - 1]
    ends = np.minimum(ends, np.append(pieces[1:], np.iinfo(np.int64).max))
    return np.stack([pieces, ends - pieces], 1)
