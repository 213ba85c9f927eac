"""A corpus row for display: its parts, its text cut at spans, the reasons for these, and blocks of texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from corpora.printing import format_count
from corpora.schemas.sequences import NO_CLUSTER, SequenceBatch
from corpora.tokenizers.protocol import Tokenizer
from objectives.api.examples import IGNORED, Examples
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE, MaskBatch
from objectives.rendering.stream import Streams
from pipelines.pages.page import MORE, Block, Part, Reason
from pipelines.pages.piece import KINDS, Kind, Piece, cut_pieces, plain_pieces, shorten


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


def span_pieces(tokenizer: Tokenizer, batch: SequenceBatch, masks: MaskBatch, start: int, stop: int) -> list[Piece]:
    """Tokens ``start:stop`` of the only row of a batch, which lie in one part, cut at its spans."""
    starts, sizes, flags = masks.span_starts[0], masks.span_lengths[0], masks.span_flags[0]
    edges: list[int] = [start]
    kinds: list[tuple[Kind, int]] = []
    for span in range(int(np.searchsorted(starts + sizes, start, side="right")), len(starts)):
        begin, end = max(int(starts[span]), start), min(int(starts[span] + sizes[span]), stop)
        if begin >= stop:
            break
        edges += [begin, end]
        kinds += [("text", -1), (treatment(int(flags[span])), span)]
    part_starts, tokens = batch.document_starts[0], batch.tokens[0]
    part = int(np.searchsorted(part_starts, start, side="right")) - 1
    ends = int(part_starts[part + 1]) if part + 1 < len(part_starts) else len(tokens)
    return list(cut_pieces(tokenizer, tokens, [*edges, stop], [*kinds, ("text", -1)], (int(part_starts[part]), ends)))


def kinds_of(masks: MaskBatch) -> list[Kind]:
    """The treatments that the spans of the only row have, in the order of the legend."""
    present = {treatment(flag) for flag in set(masks.span_flags[0].tolist())}  # np.unique would import numpy.ma
    return [kind for kind in KINDS if kind in present]


def target_spans(masks: MaskBatch) -> str:
    """The number of spans in the target of the only row, and of their tokens, in words."""
    in_target = masks.span_flags[0] & IN_TARGET != 0
    spans, tokens = int(in_target.sum()), int(masks.span_lengths[0][in_target].sum())
    made_by = "" if masks.components is None else f"{masks.components[0]}: "
    return f"{made_by}{format_count(spans, 'span')} with {format_count(tokens, 'token')} in the target"


def reasons_of(masks: MaskBatch) -> list[Reason]:
    """The reason for each span of the only row, by rank if there are ranks; empty without ranks, scores and labels."""
    columns = (masks.span_ranks, masks.span_scores, masks.span_labels)
    starts, stops = masks.span_starts[0], masks.span_starts[0] + masks.span_lengths[0]
    ranks, scores, labels = (
        None if column is None or len(column[0]) < len(starts) else column[0] for column in columns
    )
    if ranks is None and scores is None and labels is None:
        return []
    order = range(len(starts)) if ranks is None else np.argsort(ranks, kind="stable").tolist()
    return [
        Reason(
            span,
            None if ranks is None else int(ranks[span]),
            None if scores is None else float(scores[span]),
            None if labels is None else labels[span].as_py() or None,
            int(starts[span]),
            int(stops[span]),
            treatment(int(masks.span_flags[0][span])),
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


def string_block(address: str, heading: str, text: str, pieces: Sequence[Piece] = ()) -> Block:
    """A string as a block, in ``pieces`` if there are any."""

    def read(start: int, stop: int) -> list[Piece]:
        return [
            Piece(piece.text[max(start - piece.start, 0) : stop - piece.start], piece.kind, max(piece.start, start))
            for piece in pieces or [Piece(text)]
            if piece.start < stop and piece.start + len(piece.text) > start
        ]

    return Block(address, heading, "", len(text), read, unit="characters")


def token_block(
    address: str,
    heading: str,
    tokenizer: Tokenizer,
    tokens: np.ndarray,
    part: int | None = None,
    title: str | None = None,
) -> Block:
    """``(n,)`` tokens as a block; ``part`` and ``title`` are those of a document."""
    note, read = format_count(len(tokens), "token"), partial(plain_pieces, tokenizer, tokens)
    return Block(address, heading, note, len(tokens), read, tokens, part=part, title=shorten(title))


def side_blocks(address: str, examples: Examples, tokenizer: Tokenizer, special: Mapping[str, int]) -> list[Block]:
    """Source of a row, followed by its target or labels if it has any, as the model gets them."""
    length = int(examples.source_lengths[0])
    attended, note = np.zeros(length, bool), format_count(length, "position")
    if examples.global_positions is not None:
        attended = examples.global_positions[0, :length]
        note += f", {int(attended.sum())} with global attention"
    sides = [("source", note, examples.source_ids[0, :length], attended)]
    if length := int(examples.target_lengths[0]):
        prompt = 0 if examples.prompt_lengths is None else int(examples.prompt_lengths[0])
        note = format_count(length, "position") + (f", {prompt:,} of them given" if prompt else "")
        sides.append(("target", note, examples.target_ids[0, :length], np.arange(length) < prompt))
    if examples.labels is not None:
        source = _side_block(f"{address}-0", *sides[0], tokenizer, special)
        return [source, _label_block(f"{address}-1", examples.labels[0, : source.total], tokenizer)]
    return [_side_block(f"{address}-{number}", *side, tokenizer, special) for number, side in enumerate(sides)]


def stream_block(address: str, streams: Streams, tokenizer: Tokenizer, special: Mapping[str, int]) -> Block:
    """A row for a decoder, with the positions marked that have a label."""
    marked = streams.labels[0] != IGNORED
    note = f"{format_count(len(marked), 'position')}, the {int(marked.sum()):,} with labels are marked"
    return _side_block(f"{address}-0", "stream", note, streams.input_ids[0], marked, tokenizer, special)


def _side_block(
    address: str,
    name: str,
    note: str,
    ids: np.ndarray,
    marked: np.ndarray,
    tokenizer: Tokenizer,
    special: Mapping[str, int],
) -> Block:
    def read(start: int, stop: int) -> list[Piece]:
        return seen_pieces(ids[start:stop], tokenizer, special, marked[start:stop], start)

    return Block(address, name, note, len(ids), read, ids, "positions", "model")


def _label_block(address: str, labels: np.ndarray, tokenizer: Tokenizer) -> Block:
    """The labels of an encoder, each after its position in the source."""
    places = np.flatnonzero(labels != IGNORED)

    def read(start: int, stop: int) -> Iterator[Piece]:
        for at, place in enumerate(places[start:stop].tolist(), start):
            yield Piece(str(place), "special", at)
            yield Piece(f" {tokenizer.decode(labels[place : place + 1]).strip()}  ", "text", at, 1)

    return Block(
        address, "labels", format_count(len(places), "position"), len(places), read, None, "positions", "model"
    )


def decode_pieces(tokenizer: Tokenizer, tokens: np.ndarray) -> Iterator[tuple[int, str]]:
    """Decode ``(n,)`` tokens piece by piece: number of tokens, text."""
    for first in range(0, len(tokens), MORE):
        piece = tokens[first : first + MORE]
        yield len(piece), tokenizer.decode(piece)
