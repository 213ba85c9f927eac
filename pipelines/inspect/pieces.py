"""Pieces of text with what happens to each: the content that `farspan show` prints and `farspan view` draws.

Nothing here knows colours or markup. Text is as the tokenizer decodes it, of hostile documents too: whoever writes it
escapes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from corpora.schemas.sequences import NO_CLUSTER, SequenceBatch
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.examples import IGNORED, Examples
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE, MaskBatch

Kind = Literal["text", "hidden", "shown", "replaced", "candidate", "special", "shared"]
"""Of a piece: plain text, a span by its treatment, a special token, or words that another text has too."""

KINDS: Mapping[Kind, str] = {
    "hidden": "hidden",
    "shown": "visible and asked",
    "replaced": "replaced",
    "candidate": "candidate",
}
"""Each treatment of a span -> its name in a legend."""

BRACKETS: Mapping[Kind, tuple[str, str]] = {
    "hidden": ("⟦⟧", "[[]]"),
    "shown": ("⟨⟩", "<>"),
    "replaced": ("⟪⟫", "<<>>"),
    "candidate": ("‹›", "{}"),
    "shared": ("[]", "[]"),
}
"""Kind of a piece -> the pair of brackets that stands for its colour, in Unicode and in ASCII."""

_AROUND = 4  # tokens decoded before and after a range of a text; no character has more


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of tokens of one kind.

    Attributes:
        start: position of its first token in its row, source or target.
        tokens: number of its tokens.
        span: number of its span in the mask row, -1 outside of spans.
        marked: of a source, its positions have global attention; of a target, the decoder is given them.
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
        start, stop: its tokens in the row.
        offset: its first token in the document.
        document_length: tokens of the whole document.
    """

    document_id: str
    start: int
    stop: int
    offset: int
    document_length: int

    @property
    def source(self) -> str:
        """Name of the input that the document is from."""
        return self.document_id.partition(":")[0]

    @property
    def described(self) -> str:
        """Its place in the document, in words."""
        return f"tokens {self.offset} to {self.offset + self.stop - self.start} of {self.document_length}"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a span was chosen, as far as its objective says so.

    Attributes:
        span: its number in the mask row.
        rank: order of selection from 0, score and label; None where the objective gives none.
        start, stop: its tokens in the row.
        kind: its treatment.
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
    """The cluster of a row's documents."""
    number = int(batch.cluster_ids[row])
    return None if number == NO_CLUSTER else number


def plain_pieces(
    tokenizer: Tokenizer, tokens: np.ndarray, start: int, stop: int, text: tuple[int, int] | None = None
) -> list[Piece]:
    """Tokens ``start:stop`` of ``(n,)`` tokens as one piece, or none.

    Args:
        text: first and last + 1 of the tokens of the text that they are a range of; None for all n.
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
    """The pieces between consecutive token positions ``edges``, ``kinds`` with their kinds and spans.

    They are decoded together, and with the tokens around them inside of ``text``, so that neither a character of
    several tokens nor a space at the beginning of a token is lost at an edge.
    """
    first, last = max(edges[0] - _AROUND, text[0]), min(edges[-1] + _AROUND, text[1])
    decoded, places = tokenizer.decode_with_offsets(tokens[first:last])
    characters = [int(places[edge - first]) if edge < last else len(decoded) for edge in edges]
    for number, (kind, span) in enumerate(kinds):
        if (tokens_here := edges[number + 1] - edges[number]) > 0:
            here = decoded[characters[number] : characters[number + 1]]
            yield Piece(here, kind, edges[number], tokens_here, span)


def row_pieces(tokenizer: Tokenizer, batch: SequenceBatch, masks: MaskBatch | None, row: int = 0) -> list[Piece]:
    """The whole text of a row, part after part, cut at its spans."""
    found: list[Piece] = []
    for part in parts_of(batch, row):
        if masks is None:
            found += plain_pieces(tokenizer, batch.tokens[row], part.start, part.stop, (part.start, part.stop))
        else:
            found += span_pieces(tokenizer, batch, masks, part.start, part.stop, row)
    return found


def token_pieces(tokenizer: Tokenizer, tokens: np.ndarray, pieces: list[Piece]) -> list[Piece]:
    """The same pieces of ``(n,)`` tokens, cut into single tokens; special tokens stay as they are."""
    found: list[Piece] = []
    special = [(piece.start, piece.start + piece.tokens) for piece in pieces if piece.kind == "special"]
    for piece in pieces:
        if piece.kind == "special" or piece.tokens < 2:
            found.append(piece)
            continue
        stop = piece.start + piece.tokens
        edges = list(range(piece.start, stop + 1))
        # the tokenizer does not know special tokens of a mask set, so text is decoded from one to the next
        first = max((end for _, end in special if end <= piece.start), default=0)
        last = min((begin for begin, _ in special if begin >= stop), default=len(tokens))
        cut = _cut(tokenizer, tokens, edges, [(piece.kind, piece.span)] * piece.tokens, (first, last))
        found += [replace(each, marked=piece.marked) for each in cut]
    return found


def seen_pieces(
    ids: np.ndarray, tokenizer: Tokenizer, special: Mapping[str, int], marked: np.ndarray, start: int = 0
) -> list[Piece]:
    """Rendered ids as text; each special token is a piece with its name.

    Args:
        ids: ``(n,)`` ids of a source or target, from position ``start`` of it on.
        special: name -> id of every token that rendering inserts.
        marked: ``(n,)`` bool.
    """
    names = {value: name for name, value in special.items()}
    is_name = np.isin(ids, np.array(list(names), ids.dtype))
    edges = np.flatnonzero(np.diff(is_name * 2 + marked) | is_name[1:]) + 1
    found = []
    for first, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(ids)], strict=True):
        if first == stop:
            continue
        named = bool(is_name[first])
        text = names[int(ids[first])] if named else tokenizer.decode_with_offsets(ids[first:stop])[0]
        kind: Kind = "special" if named else "text"
        found.append(Piece(text, kind, start + first, stop - first, marked=bool(marked[first])))
    return found


@dataclass(frozen=True, slots=True)
class Side:
    """Source, target or labels of a row, as the model gets them.

    Attributes:
        name: ``source``, ``target`` or ``labels``.
        described: its length, in words.
        ids: ``(n,)`` ids; of labels, those of the positions asked.
        marked: ``(n,)`` bool, as in ``Piece``.
        places: ``(n,)`` positions in the source; of labels only.
    """

    name: str
    described: str
    ids: np.ndarray
    marked: np.ndarray
    places: np.ndarray | None = None


def sides_of(examples: Examples, row: int = 0) -> list[Side]:
    """Source of a row, and its target or labels; without either where nothing is asked."""
    length = int(examples.source_lengths[row])
    attended, note = np.zeros(length, bool), ""
    if examples.global_positions is not None:
        attended = examples.global_positions[row, :length]
        note = f", {int(attended.sum())} with global attention"
    found = [Side("source", f"{length} positions{note}", examples.source_ids[row, :length], attended)]
    if examples.labels is not None:
        labels = examples.labels[row, :length]
        asked = np.flatnonzero(labels != IGNORED)
        found.append(Side("labels", f"{len(asked)} positions asked", labels[asked], np.zeros(len(asked), bool), asked))
    elif length := int(examples.target_lengths[row]):
        given = 0 if examples.prompt_lengths is None else int(examples.prompt_lengths[row])
        described = f"{length} positions" + (f", {given} given" if given else "")
        found.append(Side("target", described, examples.target_ids[row, :length], np.arange(length) < given))
    return found


def kinds_of(masks: MaskBatch, row: int = 0) -> list[Kind]:
    """The treatments of the spans of a row, in the order of the legend."""
    present = {treatment(int(flag)) for flag in np.unique(masks.span_flags[row])}
    return [kind for kind in KINDS if kind in present]


def asked_spans(masks: MaskBatch, row: int = 0) -> tuple[int, int]:
    """Number of spans in the target, and of their tokens."""
    asked = masks.span_flags[row] & IN_TARGET != 0
    return int(asked.sum()), int(masks.span_lengths[row][asked].sum())


def reasons_of(masks: MaskBatch, row: int = 0) -> list[Reason]:
    """A reason for each span, in order of rank where there are ranks; none without ranks, scores and labels."""
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
