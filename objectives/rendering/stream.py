"""Rows for decoders: source and target of an example, or the text of a corpus row, as one row of ids with labels.

Labels are those of transformers: ``labels[i]`` is ``input_ids[i]`` if position ``i - 1`` shall predict it, else
``IGNORED``; models shift them. So the last source position predicts the first target token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from corpora.compiled import compiled
from corpora.errors import FarspanError
from corpora.printing import format_count
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged, read_only
from objectives.api.examples import IGNORED, Examples
from objectives.api.special_tokens import BEGIN, END, PAD, SpecialTokens, find_owned_id
from objectives.rendering.kernels import NONE


@dataclass(frozen=True, slots=True)
class Streams:
    """``n`` rows for a decoder, one after another without padding.

    A *unit* is what attention stays within: an example, a part of a document, or a whole row of parts. The columns of
    positions share their offsets.

    Attributes:
        sequence_ids: ``(n, 16)`` uint8, ids of the corpus rows.
        input_ids: n rows of int32.
        labels: n rows of int32, ``input_ids`` or ``IGNORED``, not shifted. The first position of a unit has no label.
        position_ids: n rows of int32, 0 at the first position of each unit, ascending by 1 inside it.
        document_ids: n rows of int32, the part (0, 1, ...) of its row that each position belongs to, -1 in a target;
            0 in a source whose objective gives no parts.
        prefix_lengths: ``(n,)`` int32, positions of each row's source, which attend to each other in both directions if
            attention is of kind ``prefix``; 0 for text.
    """

    sequence_ids: np.ndarray
    input_ids: Ragged
    labels: Ragged
    position_ids: Ragged
    document_ids: Ragged
    prefix_lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.sequence_ids)


@dataclass(frozen=True)
class _Columns:
    """Unfilled columns of ``Streams``: ids, labels, positions, documents."""

    offsets: np.ndarray
    values: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, lengths: np.ndarray) -> _Columns:
        offsets = Ragged.from_lengths(lengths, lengths).offsets
        return cls(offsets, tuple(np.empty(offsets[-1], np.int32) for _ in range(4)))

    def streams(self, sequence_ids: np.ndarray, prefix_lengths: np.ndarray) -> Streams:
        ids, labels, positions, documents = (Ragged(values, self.offsets) for values in self.values)
        return Streams(sequence_ids, ids, labels, positions, documents, prefix_lengths)


@compiled(small=True)
def _join(sides: tuple[np.ndarray, ...], offsets: np.ndarray, out: tuple[np.ndarray, ...]) -> None:
    """Fill rows with source and target.

    ``sides``: ids of sources and targets, lengths of sources, numbers of first target tokens that are left out, and of
    those without labels, and the parts of source positions, which may be empty.
    """
    sources, targets, source_lengths, skipped, prompts, parts = sides
    ids, labels, positions, documents = out
    for row in range(len(source_lengths)):
        first, source = offsets[row], source_lengths[row]
        for i in range(source):
            ids[first + i], labels[first + i], positions[first + i] = sources[row, i], IGNORED, i
            documents[first + i] = parts[row, i] if parts.size else 0
        for i in range(source, offsets[row + 1] - first):
            place = i - source + skipped[row]
            token = targets[row, place]
            ids[first + i], positions[first + i], documents[first + i] = token, i, -1
            labels[first + i] = token if place >= prompts[row] and i > 0 else IGNORED


@compiled(small=True)
def _lay_out(
    parts: tuple[np.ndarray, ...],
    frame: tuple[int, ...],
    across: bool,
    offsets: np.ndarray,
    out: tuple[np.ndarray, ...],
) -> None:
    """Fill rows with their parts.

    ``parts``: tokens; first token, size, and True for a token after it, of each part; first part of each row.
    """
    tokens, starts, sizes, ended, part_offsets = parts
    begin, between, end = frame
    ids, labels, positions, documents = out
    for row in range(len(part_offsets) - 1):
        at = unit = offsets[row]
        last = part_offsets[row + 1]
        for part in range(part_offsets[row], last):
            first = at
            if not across:
                unit = at
            if begin != NONE:
                ids[at] = begin
                at += 1
            for i in range(sizes[part]):
                ids[at + i] = tokens[starts[part] + i]
            at += sizes[part]
            if ended[part]:
                ids[at] = end
                at += 1
            if between != NONE and part + 1 < last:
                ids[at] = between
                at += 1
            for i in range(first, at):
                labels[i] = ids[i] if i > unit else IGNORED
                positions[i] = i - unit
                documents[i] = part - part_offsets[row]


ATTENTION = ("causal", "prefix")


@dataclass(frozen=True)
class StreamLayout:
    """Options of rows for decoders: examples of an objective, or text without masks.

    Attributes:
        attention: ``causal``, or ``prefix`` to let the positions of an example's source attend in both directions.
        block_mask: give batches a mask for each pair of positions, for PyTorch's attention (``sdpa``); False gives the
            ends of documents, for FlashAttention. Attention ``prefix`` needs a mask and always gives one.
        across_documents: let a text's documents attend to earlier ones in their row, and predict their first tokens. An
            example is never divided.
        begin: token before each document of a text; ``<bos>`` is left out if the tokenizer has none; None for no token.
        between: token between two documents of a text; None for no token.
        end: token after each document of a text that ends in the row; ``<eos>`` is left out if the tokenizer has none;
            None for no token.
        ends_between: keep the end token of an example's source and the begin token of its target; False leaves out both
            where they meet, for readers that take them for the boundary of two documents.
        max_length: maximum number of positions of a row; None for any number.
        vocab_size: number of token embeddings of the model, which all ids must be below; None for any number.
    """

    attention: str = "causal"
    block_mask: bool = False
    across_documents: bool = False
    begin: str | None = BEGIN
    between: str | None = None
    end: str | None = END
    ends_between: bool = True
    max_length: int | None = None
    vocab_size: int | None = None

    def __post_init__(self) -> None:
        if self.attention not in ATTENTION:
            raise FarspanError(f"attention {self.attention!r} of a stream: choose {' or '.join(ATTENTION)}")

    @property
    def needs_mask(self) -> bool:
        """True if batches have a mask for each pair of positions."""
        return self.block_mask or self.attention == "prefix"

    def text_tokens(self, vocab_size: int, owned: Mapping[str, int]) -> SpecialTokens:
        """Return the ids of padding and of the tokens around documents, all of them the tokenizer's own.

        ``owned``: roles and special tokens that the tokenizer has, name -> id.
        """
        ids = {}
        for role in ("begin", "between", "end"):
            name = getattr(self, role)
            number = None if name is None else find_owned_id(owned, name)
            if number is not None:
                ids[name] = number
            elif name not in (None, BEGIN, END):
                raise FarspanError(
                    f"{role} {name!r} of a stream: the tokenizer has no such special token; choose one of "
                    f"{', '.join(owned)}"
                )
        # Padding is never predicted nor seen by text, so any id will do.
        ids.setdefault(PAD, owned.get(PAD, owned.get(END, 0)))
        return SpecialTokens(ids, vocab_size)

    def check(self, special: SpecialTokens, longest: int, described: str) -> None:
        """Check, before rows are read, that the model has embeddings for all ids and no row is too long.

        ``longest``: number of positions that the longest row has at least. ``described``: name of the rows, for errors.
        """
        if self.vocab_size is not None and special.vocab_size > self.vocab_size:
            raise FarspanError(
                f"{described}: its rows have ids up to {special.vocab_size - 1:,}, the model has {self.vocab_size:,} "
                f"token embeddings; resize them to {special.vocab_size:,}"
            )
        if self.max_length is not None and longest > self.max_length + (not self.ends_between):
            raise FarspanError(
                f"{described}: its longest row has {longest:,} positions or more, max_length is {self.max_length:,}; "
                "raise it, or make shorter rows"
            )

    def stream_text(self, batch: SequenceBatch, special: SpecialTokens) -> Streams:
        """Lay out the text of n corpus rows with labels on all tokens; ``special`` is the result of ``text_tokens``.

        A token ``between`` belongs to the part before it; ``end`` follows parts that reach the end of their document.
        """
        names = (self.begin, self.between, self.end)
        begin, between, end = (special.ids.get(name, NONE) if name else NONE for name in names)
        tokens, starts = batch.tokens.compact(), batch.document_starts.compact()
        first = np.repeat(tokens.offsets[:-1], starts.lengths) + starts.values
        sizes = np.diff(np.append(first, tokens.offsets[-1]))
        ended = batch.document_offsets.compact().values + sizes == batch.document_lengths.compact().values
        ended &= end != NONE
        edges = np.concatenate([[0], np.cumsum(ended)])[starts.offsets]
        inner = np.maximum(starts.lengths - 1, 0) * (between != NONE)
        out = _Columns.of(tokens.lengths + np.diff(edges) + starts.lengths * (begin != NONE) + inner)
        parts = read_only(tokens.values, first, sizes, ended, starts.offsets)
        _lay_out(parts, (begin, between, end), self.across_documents, out.offsets, out.values)
        return self._within(out.streams(batch.sequence_ids, np.zeros(len(batch), np.int32)))

    def stream_examples(self, examples: Examples, special: SpecialTokens) -> Streams:
        """Join source and target of each example, rendered with ``special``, to one unit with labels on the target.

        The prompt of a target has no labels. An example without target becomes a row without labels.
        """
        if examples.labels is not None:
            raise FarspanError(
                "the objective predicts tokens in their places in the source, without a target, so its rows cannot be "
                "streams; choose an objective with a target"
            )
        rows = np.arange(len(examples))
        sources, targets = examples.source_lengths.astype(np.int64), examples.target_lengths.astype(np.int64)
        prompts = np.zeros(len(rows), np.int64) if examples.prompt_lengths is None else examples.prompt_lengths
        skipped = np.zeros(len(rows), np.int64)
        if not self.ends_between and examples.source_ids.size and examples.target_ids.size:
            both = (sources > 0) & (targets > 0)
            begun = both & (examples.target_ids[:, 0] == special[BEGIN])
            sources = sources - (both & (examples.source_ids[rows, sources - 1] == special[END]))
            skipped[begun] = 1
        out = _Columns.of(sources + targets - skipped)
        parts = np.zeros((0, 0), np.int32) if examples.segment_ids is None else examples.segment_ids
        sides = read_only(examples.source_ids, examples.target_ids, sources, skipped, prompts.astype(np.int64), parts)
        _join(sides, out.offsets, out.values)
        return self._within(out.streams(examples.sequence_ids, sources.astype(np.int32)))

    def _within(self, streams: Streams) -> Streams:
        """Refuse rows that are too long."""
        lengths = streams.input_ids.lengths
        if self.max_length is not None and (longest := int(lengths.max(initial=0))) > self.max_length:
            row = streams.sequence_ids[int(np.argmax(lengths))].tobytes().hex()
            raise FarspanError(
                f"sequence {row}: its stream has {format_count(longest, 'position')}, "
                f"max_length is {self.max_length:,}; raise it, or make shorter rows"
            )
        return streams
