"""A corpus row for display: its parts, its text cut at spans, the reasons for these, and source and target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from corpora.printing import format_count
from corpora.schemas.sequences import NO_CLUSTER, SequenceBatch
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.examples import IGNORED, Examples
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE, MaskBatch
from objectives.rendering.stream import Streams
from pipelines.pages.piece import KINDS, Kind, Piece, cut_pieces


@dataclass(frozen=True, slots=True)
class Part:
    """The piece of a document that lies in a row.

    Attributes:
        document_id: ``source:path:record``.
        start, stop: first and last + 1 token in the row.
        offset: first token in the document.
        document_length: tokens of the whole document.
        title: title of the document; None if it has none or is not looked up.
    """

    document_id: str
    start: int
    stop: int
    offset: int
    document_length: int
    title: str | None = None

    @property
    def source(self) -> str:
        """Name of the document's source."""
        return self.document_id.partition(":")[0]

    @property
    def place(self) -> str:
        """Tokens of its document, in words."""
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
    return list(cut_pieces(tokenizer, tokens, [*edges, stop], [*kinds, ("text", -1)], (int(part_starts[part]), ends)))


def kinds_of(masks: MaskBatch, row: int = 0) -> list[Kind]:
    """The treatments that the spans of a row have, in the order of the legend."""
    present = {treatment(flag) for flag in set(masks.span_flags[row].tolist())}  # np.unique would import numpy.ma
    return [kind for kind in KINDS if kind in present]


def target_spans(masks: MaskBatch, row: int = 0) -> str:
    """The number of spans in the target, and of their tokens, in words."""
    in_target = masks.span_flags[row] & IN_TARGET != 0
    spans, tokens = int(in_target.sum()), int(masks.span_lengths[row][in_target].sum())
    made_by = "" if masks.components is None else f"{masks.components[row]}: "
    return f"{made_by}{format_count(spans, 'span')} with {format_count(tokens, 'token')} in the target"


def reasons_of(masks: MaskBatch, row: int = 0) -> list[Reason]:
    """The reason for each span, by rank if there are ranks; empty if there are no ranks, scores or labels."""
    columns = (masks.span_ranks, masks.span_scores, masks.span_labels)
    spans = len(masks.span_starts[row])
    ranks, scores, labels = (None if column is None or len(column[row]) < spans else column[row] for column in columns)
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


def seen_pieces(
    ids: np.ndarray, tokenizer: Tokenizer, special: Mapping[str, int], marked: np.ndarray, start: int = 0
) -> list[Piece]:
    """Rendered ``(n,)`` ids from position ``start`` of a source or target on as text; ``marked`` is ``(n,)`` bool.

    Each special token that rendering inserts is a piece with its name.
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
    """Source, target, labels or stream of a row, as the model gets them.

    Attributes:
        name: ``source``, ``target``, ``labels`` or ``stream``.
        note: length, in words.
        ids: ``(n,)`` ids; only positions with a label count for labels.
        marked: ``(n,)`` bool, as in ``Piece``.
        places: ``(n,)`` positions of labels in the source; None for a source or target.
    """

    name: str
    note: str
    ids: np.ndarray
    marked: np.ndarray
    places: np.ndarray | None = None


def sides_of(examples: Examples, row: int = 0) -> list[Side]:
    """Source of a row, followed by its target or labels if it has any."""
    length = int(examples.source_lengths[row])
    attended, note = np.zeros(length, bool), format_count(length, "position")
    if examples.global_positions is not None:
        attended = examples.global_positions[row, :length]
        note += f", {int(attended.sum())} with global attention"
    sides = [Side("source", note, examples.source_ids[row, :length], attended)]
    if examples.labels is not None:
        labels = examples.labels[row, :length]
        places = np.flatnonzero(labels != IGNORED)
        sides.append(
            Side("labels", format_count(len(places), "position"), labels[places], np.zeros(len(places), bool), places)
        )
    elif length := int(examples.target_lengths[row]):
        prompt = 0 if examples.prompt_lengths is None else int(examples.prompt_lengths[row])
        note = format_count(length, "position") + (f", {prompt:,} of them given" if prompt else "")
        sides.append(Side("target", note, examples.target_ids[row, :length], np.arange(length) < prompt))
    return sides


def side_of_stream(streams: Streams, row: int = 0) -> Side:
    """A row for a decoder, with the positions marked that have a label."""
    marked = streams.labels[row] != IGNORED
    note = f"{format_count(len(marked), 'position')}, the {int(marked.sum()):,} with labels are marked"
    return Side("stream", note, streams.input_ids[row], marked)
