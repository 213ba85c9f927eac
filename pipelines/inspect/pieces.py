"""Pieces of text with their treatment: the content that `farspan show` prints and `farspan view` draws.

Pieces have neither colours nor markup. Their text is as the tokenizer decodes it and may come from hostile documents,
so the code that writes it must escape it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from corpora.printing import counted
from corpora.schemas.sequences import NO_CLUSTER, SequenceBatch
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.examples import IGNORED, Examples
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE, MaskBatch

Kind = Literal["text", "hidden", "shown", "replaced", "candidate", "special", "shared"]
"""Kind of a piece: plain text, a span by its treatment, a special token, or words that another text has too."""

KINDS: Mapping[Kind, str] = {
    "hidden": "hidden",
    "shown": "visible, in target",
    "replaced": "replaced",
    "candidate": "candidate",
}
"""Treatment of a span -> its name in a legend."""

BRACKETS: Mapping[Kind, tuple[str, str]] = {
    "hidden": ("⟦⟧", "[[]]"),
    "shown": ("⟨⟩", "<>"),
    "replaced": ("⟪⟫", "<<>>"),
    "candidate": ("‹›", "{}"),
    "shared": ("[]", "[]"),
}
"""Kind of a piece -> the pair of brackets that replaces its colour, in Unicode and in ASCII."""

_AROUND = 4  # tokens decoded before and after a range of a text; no character consists of more


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of tokens of one kind.

    Attributes:
        start: position of its first token in its row, source or target.
        tokens: number of its tokens.
        span: number of its span in the mask row, -1 outside of spans.
        marked: True if its positions in a source have global attention, or are the prompt of a target.
    """

    text: str
    kind: Kind = "text"
    start: int = 0
    tokens: int = 0
    span: int = -1
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """The piece of a document that lies in a row.

    Attributes:
        document_id: ``source:path:record``.
        start, stop: first and last + 1 token in the row.
        offset: first token in the document.
        document_length: tokens of the whole document.
    """

    document_id: str
    start: int
    stop: int
    offset: int
    document_length: int

    @property
    def source(self) -> str:
        """Name of the document's source."""
        return self.document_id.partition(":")[0]

    @property
    def described(self) -> str:
        """Place of the part in its document, in words."""
        return f"tokens {self.offset} to {self.offset + self.stop - self.start} of {self.document_length}"


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason for the choice of a span: its rank, score and label, each None if the objective records none.

    Attributes:
        span: number of the span in the mask row.
        rank: order of selection, from 0.
        start, stop: first and last + 1 token in the row.
        kind: treatment of the span.
    """

    span: int
    rank: int | None
    score: float | None
    label: str | None
    start: int
    stop: int
    kind: Kind


def treatment(flag: int) -> Kind:
    """The kind of a span with ``span_flags`` ``flag``."""
    if flag & REPLACED:
        return "replaced"
    if flag & VISIBLE:
        return "shown"
    return "hidden" if flag & (IN_SOURCE | IN_TARGET) else "candidate"


def parts_of(batch: SequenceBatch, row: int = 0) -> list[Part]:
    """The parts of a row, in order."""
    starts = batch.document_starts[row].tolist()
    stops = [*starts[1:], len(batch.tokens[row])]
    columns = (batch.document_offsets[row].tolist(), batch.document_lengths[row].tolist())
    return [Part(*values) for values in zip(batch.document_ids[row].as_py(), starts, stops, *columns, strict=True)]


def cluster_of(batch: SequenceBatch, row: int = 0) -> int | None:
    """The cluster of a row's documents; None if there is none."""
    number = int(batch.cluster_ids[row])
    return None if number == NO_CLUSTER else number


def plain_pieces(
    tokenizer: Tokenizer, tokens: np.ndarray, start: int, stop: int, text: tuple[int, int] | None = None
) -> list[Piece]:
    """Tokens ``start:stop`` of ``(n,)`` tokens as one piece, or no piece for an empty range.

    Args:
        text: first and last + 1 token of the text that contains the range; None for all n.
    """
    return list(_cut(tokenizer, tokens, [start, stop], [("text", -1)], text or (0, len(tokens))))


def span_pieces(
    tokenizer: Tokenizer, batch: SequenceBatch, masks: MaskBatch, start: int, stop: int, row: int = 0
) -> list[Piece]:
    """Tokens ``start:stop`` of a row, which lie in one part, cut at its spans."""
    starts, sizes, flags = masks.span_starts[row], masks.span_lengths[row], masks.span_flags[row]
    edges: list[int] = [start]
    kinds: list[tuple[Kind, int]] = []
    for span in range(int(np.searchsorted(starts + sizes, start, side="right")), len(starts)):
        begin, end = max(int(starts[span]), start), min(int(starts[span] + sizes[span]), stop)
        if begin >= stop:
            break
        edges += [begin, end]
        kinds += [("text", -1), (treatment(int(flags[span])), span)]
    part_starts, tokens = batch.document_starts[row], batch.tokens[row]
    part = int(np.searchsorted(part_starts, start, side="right")) - 1
    ends = int(part_starts[part + 1]) if part + 1 < len(part_starts) else len(tokens)
    return list(_cut(tokenizer, tokens, [*edges, stop], [*kinds, ("text", -1)], (int(part_starts[part]), ends)))


def _cut(
    tokenizer: Tokenizer,
    tokens: np.ndarray,
    edges: list[int],
    kinds: list[tuple[Kind, int]],
    text: tuple[int, int],
) -> Iterator[Piece]:
    """Cut a text at the token positions ``edges`` into pieces, with the kinds and spans ``kinds``.

    The pieces are decoded together, and with the tokens around them inside of ``text``, so that neither a character of
    several tokens nor a space at the beginning of a token is lost at an edge.
    """
    first, last = max(edges[0] - _AROUND, text[0]), min(edges[-1] + _AROUND, text[1])
    decoded, places = tokenizer.decode_with_offsets(tokens[first:last])
    characters = [int(places[edge - first]) if edge < last else len(decoded) for edge in edges]
    for number, (kind, span) in enumerate(kinds):
        if (count := edges[number + 1] - edges[number]) > 0:
            piece_text = decoded[characters[number] : characters[number + 1]]
            yield Piece(piece_text, kind, edges[number], count, span)


def row_pieces(tokenizer: Tokenizer, batch: SequenceBatch, masks: MaskBatch | None, row: int = 0) -> list[Piece]:
    """The whole text of a row, part after part, cut at its spans."""
    pieces: list[Piece] = []
    for part in parts_of(batch, row):
        if masks is None:
            pieces += plain_pieces(tokenizer, batch.tokens[row], part.start, part.stop, (part.start, part.stop))
        else:
            pieces += span_pieces(tokenizer, batch, masks, part.start, part.stop, row)
    return pieces


def token_pieces(tokenizer: Tokenizer, tokens: np.ndarray, pieces: list[Piece]) -> list[Piece]:
    """Cut pieces of ``(n,)`` tokens into single tokens; special tokens stay as they are."""
    singles: list[Piece] = []
    special = [(piece.start, piece.start + piece.tokens) for piece in pieces if piece.kind == "special"]
    for piece in pieces:
        if piece.kind == "special" or piece.tokens < 2:
            singles.append(piece)
            continue
        stop = piece.start + piece.tokens
        edges = list(range(piece.start, stop + 1))
        # the tokenizer does not know the special tokens of a mask set, so the text between two of them is decoded
        first = max((end for _, end in special if end <= piece.start), default=0)
        last = min((begin for begin, _ in special if begin >= stop), default=len(tokens))
        cut = _cut(tokenizer, tokens, edges, [(piece.kind, piece.span)] * piece.tokens, (first, last))
        singles += [replace(each, marked=piece.marked) for each in cut]
    return singles


def seen_pieces(
    ids: np.ndarray, tokenizer: Tokenizer, special: Mapping[str, int], marked: np.ndarray, start: int = 0
) -> list[Piece]:
    """Rendered ids as text; each special token is a piece with its name.

    Args:
        ids: ``(n,)`` ids of a range of a source or target that begins at position ``start``.
        special: name -> id of every token that rendering inserts.
        marked: ``(n,)`` bool, as in ``Piece``.
    """
    names = {value: name for name, value in special.items()}
    is_name = np.isin(ids, np.array(list(names), ids.dtype))
    edges = np.flatnonzero(np.diff(is_name * 2 + marked) | is_name[1:]) + 1
    pieces = []
    for first, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(ids)], strict=True):
        if first == stop:
            continue
        named = bool(is_name[first])
        text = names[int(ids[first])] if named else tokenizer.decode_with_offsets(ids[first:stop])[0]
        kind: Kind = "special" if named else "text"
        pieces.append(Piece(text, kind, start + first, stop - first, marked=bool(marked[first])))
    return pieces


@dataclass(frozen=True, slots=True)
class Side:
    """Source, target or labels of a row, as the model gets them.

    Attributes:
        name: ``source``, ``target`` or ``labels``.
        described: length, in words.
        ids: ``(n,)`` ids; only positions with a label count for labels.
        marked: ``(n,)`` bool, as in ``Piece``.
        places: ``(n,)`` positions of labels in the source; None for a source or target.
    """

    name: str
    described: str
    ids: np.ndarray
    marked: np.ndarray
    places: np.ndarray | None = None


def sides_of(examples: Examples, row: int = 0) -> list[Side]:
    """Source of a row, followed by its target or labels if it has any."""
    length = int(examples.source_lengths[row])
    attended, note = np.zeros(length, bool), ""
    if examples.global_positions is not None:
        attended = examples.global_positions[row, :length]
        note = f", {int(attended.sum())} with global attention"
    positions = counted(length, "position")
    sides = [Side("source", f"{positions}{note}", examples.source_ids[row, :length], attended)]
    if examples.labels is not None:
        labels = examples.labels[row, :length]
        places = np.flatnonzero(labels != IGNORED)
        described = counted(len(places), "position")
        sides.append(Side("labels", described, labels[places], np.zeros(len(places), bool), places))
    elif length := int(examples.target_lengths[row]):
        prompt = 0 if examples.prompt_lengths is None else int(examples.prompt_lengths[row])
        described = counted(length, "position") + (f", {prompt:,} of them given" if prompt else "")
        sides.append(Side("target", described, examples.target_ids[row, :length], np.arange(length) < prompt))
    return sides


def kinds_of(masks: MaskBatch, row: int = 0) -> list[Kind]:
    """The treatments that the spans of a row have, in the order of the legend."""
    present = {treatment(int(flag)) for flag in np.unique(masks.span_flags[row])}
    return [kind for kind in KINDS if kind in present]


def target_spans(masks: MaskBatch, row: int = 0) -> str:
    """The number of spans in the target, and of their tokens, in words."""
    in_target = masks.span_flags[row] & IN_TARGET != 0
    spans, tokens = int(in_target.sum()), int(masks.span_lengths[row][in_target].sum())
    return f"{counted(spans, 'span')} with {counted(tokens, 'token')} in the target"


def reasons_of(masks: MaskBatch, row: int = 0) -> list[Reason]:
    """The reason for each span, by rank if there are ranks; empty if there are no ranks, scores or labels."""
    columns = (masks.span_ranks, masks.span_scores, masks.span_labels)
    ranks, scores, labels = (None if column is None else column[row] for column in columns)
    if ranks is None and scores is None and labels is None:
        return []
    starts, stops = masks.span_starts[row], masks.span_starts[row] + masks.span_lengths[row]
    order = range(len(starts)) if ranks is None else np.argsort(ranks, kind="stable").tolist()
    return [
        Reason(
            span,
            None if ranks is None else int(ranks[span]),
            None if scores is None else float(scores[span]),
            None if labels is None else labels[span].as_py() or None,
            int(starts[span]),
            int(stops[span]),
            treatment(int(masks.span_flags[row][span])),
        )
        for span in order
    ]
