"""Rows of a corpus as pages: for each mask set the text, the reasons for its spans, source and target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import pyarrow.compute as pc

from corpora.errors import FarspanError
from corpora.printing import format_count
from corpora.schemas.corpus import Corpus
from corpora.schemas.sequences import SequenceBatch, fixed_bytes
from corpora.tokenizers.load import load_tokenizer_of
from objectives.api.masks import MaskBatch
from objectives.rendering.stream_layout import StreamLayout
from pipelines.pages.blocks import bounds, no_block, side_block
from pipelines.pages.filters import Filter, batch_bounds, document_matches, list_lengths, read_rows, within
from pipelines.pages.links import Links
from pipelines.pages.maskers import Masker, describe_options, hidden_shares
from pipelines.pages.measures import FEW, SOME, Measure
from pipelines.pages.page import BEGINNING, MORE, SPAN_TEXT, Block, Column, Link, PageOptions, RowPage, Why
from pipelines.pages.piece import Kind, plain_pieces
from pipelines.pages.row import (
    Part,
    Side,
    cluster_of,
    kinds_of,
    parts_of,
    reasons_of,
    side_of_stream,
    sides_of,
    span_pieces,
    target_spans,
    treatment,
)
from pipelines.pages.titles import Titles, shorten

_BINS = 400  # bins of the picture of a row
_TEXT = -1  # number of the row without masks


@dataclass(frozen=True)
class _Row:
    """A row that was read, with its masks in each mask set, and for each, by its number, the sides or the stream."""

    batch: SequenceBatch
    parts: list[Part]
    masks: tuple[MaskBatch, ...]
    sides: dict[int, list[Side]]


class CorpusRows:
    """A ``Subject``: a corpus, with mask sets beside it."""

    kind = "corpus"

    def __init__(
        self,
        name: str,
        corpus: Corpus,
        maskers: Sequence[Masker] = (),
        links: Links | None = None,
        titles: Titles | None = None,
        layout: StreamLayout | None = None,
    ) -> None:
        """
        Args:
            layout: layout of rows as streams; None shows source and target of each mask set.

        Raises:
            FarspanError: a row has no stream.
        """
        self.name, self.folder = name, corpus.folder
        self._corpus, self._maskers, self._links, self._titles = corpus, tuple(maskers), links, titles
        self.tokenizer = load_tokenizer_of(corpus.folder)
        self.sources = tuple(sorted(corpus.manifest.counts))
        self.mask_sets = tuple(masker.name for masker in maskers)
        self.draws = max([masker.draws for masker in maskers], default=1)
        totals = corpus.manifest.totals
        counts = (len(corpus), totals["tokens"], totals["documents"])
        self.summary = ", ".join(map(format_count, counts, ("row", "token", "document")))
        self._layout = layout
        self._specials = {number: masker.special for number, masker in enumerate(maskers)}
        if layout and not maskers:
            tokenizer = corpus.manifest.tokenizer
            self._specials[_TEXT] = layout.text_tokens(tokenizer["vocab_size"], tokenizer["owned_tokens"])
        self._row = lru_cache(maxsize=16)(self._read)
        if layout and len(corpus):
            self._row(0, 0)  # refuses objectives without a target before anything is shown

    def __len__(self) -> int:
        return len(self._corpus)

    def _read(self, row: int, draw: int) -> _Row:
        rows = np.array([row])
        batch = self._corpus.take(rows)
        masks = tuple(masker.masks(batch, rows, draw) for masker in self._maskers)
        parts = self._titles.with_titles(parts_of(batch)) if self._titles else parts_of(batch)
        sides = {number: self._sides(number, batch, hidden) for number, hidden in enumerate(masks)}
        if self._layout and not masks:
            sides[_TEXT] = [side_of_stream(self._layout.stream_text(batch, self._specials[_TEXT]))]
        return _Row(batch, parts, masks, sides)

    def _sides(self, number: int, batch: SequenceBatch, masks: MaskBatch) -> list[Side]:
        """Render the row with mask set ``number``."""
        masker = self._maskers[number]
        examples = masker.objective.render(batch, masks, masker.special)
        if not self._layout:
            return sides_of(examples)
        try:
            return [side_of_stream(self._layout.stream_examples(examples, masker.special))]
        except FarspanError as error:
            raise FarspanError(f"--layout stream: {masker.name}: {error}") from error

    def page(self, row: int, options: PageOptions) -> RowPage:
        read = self._row(row, options.draw)
        first = min(max(options.first_part, 0), max(len(read.parts) - 1, 0))
        parts = read.parts[first : first + options.parts]
        cluster, tokens = cluster_of(read.batch), len(read.batch.tokens[0])
        facts = [
            ("sequence", read.batch.sequence_id(0).hex()),
            ("tokens", f"{tokens:,} of at most {self._corpus.manifest.config['sequence_length']:,} positions"),
            ("documents", f"{len(read.parts):,}"),
        ]
        if cluster is not None:
            facts.append(("cluster", str(cluster)))
        if self.draws > 1:
            facts.append(("draw", f"{options.draw} of {self.draws}"))
        links: list[Link] = []
        if self._links:
            before = read.parts[max(first - 1, 0) : first + options.parts] if first else parts
            links = self._links.of(before, cluster)[len(before) - len(parts) :]
        numbers = range(len(self._maskers)) if self._maskers else (_TEXT,)
        return RowPage(
            row=row,
            heading=f"row {row:,} of {len(self):,}",
            facts=tuple(facts),
            bands=(tuple(self._column(read, number, first, options) for number in numbers),),
            tokens=tokens,
            parts=tuple(parts),
            first_part=first,
            all_parts=len(read.parts),
            links=tuple(links),
            missing=tuple(each.missing for each in (self._links, self._titles) if each and each.missing),
        )

    def _column(self, read: _Row, number: int, first_part: int, options: PageOptions) -> Column:
        """The row with mask set ``number``, or ``_TEXT``."""
        shown = range(first_part, min(first_part + options.parts, len(read.parts)))
        seen = tuple(self._side(read, number, side, 0, options.size) for side in range(len(read.sides.get(number, ()))))
        blocks = tuple(self._text(read, number, part, 0, options.size) for part in shown)
        if number == _TEXT:
            return Column("text", "", blocks, seen=seen)
        masker, masks = self._maskers[number], read.masks[number]
        reasons = reasons_of(masks)
        starts = [part.start for part in read.parts]
        whys = tuple(
            Why(
                reason,
                int(np.searchsorted(starts, reason.start, side="right")) - 1,
                self._shorten(read, number, reason.start, reason.stop),
            )
            for reason in reasons[: options.reasons]
        )
        return Column(
            heading=masker.name,
            note=target_spans(masks),
            blocks=blocks,
            objective=masker.objective.name,
            options=describe_options(masker.objective),
            share=float(hidden_shares(masks, read.batch.tokens.lengths)[0]),
            number=number,
            kinds=tuple(kinds_of(masks)),
            density=_density(masks, len(read.batch.tokens[0])),
            whys=whys,
            more_whys=len(reasons) - len(whys),
            seen=seen,
        )

    def _shorten(self, read: _Row, number: int, start: int, stop: int) -> str:
        """The first ``SPAN_TEXT`` characters of a span."""
        pieces = span_pieces(self.tokenizer, read.batch, read.masks[number], start, min(stop, start + SPAN_TEXT))
        text = " ".join("".join(piece.text for piece in pieces).split())
        return text if len(text) <= SPAN_TEXT and stop - start <= SPAN_TEXT else text[:SPAN_TEXT] + " …"

    def block(self, row: int, address: str, start: int, size: int, options: PageOptions) -> Block:
        read = self._row(row, options.draw)
        try:
            what, number, place = address.split("-", 2)
            masks = int(number or _TEXT)
            if what == "text" and _TEXT <= masks < len(self._maskers) and 0 <= int(place) < len(read.parts):
                return self._text(read, masks, int(place), start, size)
            if what == "seen" and 0 <= int(place) < len(read.sides[masks]):
                return self._side(read, masks, int(place), start, size)
        except (ValueError, LookupError):
            pass
        raise no_block(address)

    def _text(self, read: _Row, number: int, place: int, start: int, size: int) -> Block:
        part, tokens = read.parts[place], read.batch.tokens[0]
        start, stop = bounds(start, part.stop - part.start, size)
        in_row = part.start + start, part.start + stop
        if number == _TEXT:
            pieces = plain_pieces(self.tokenizer, tokens, *in_row, (part.start, part.stop))
        else:
            pieces = span_pieces(self.tokenizer, read.batch, read.masks[number], *in_row)
        pieces = [replace(piece, start=piece.start - part.start) for piece in pieces]
        return Block(
            address=_address("text", number, place),
            heading=part.document_id,
            note=part.place,
            pieces=tuple(pieces),
            start=start,
            stop=stop,
            total=part.stop - part.start,
            part=place,
            ids=tokens[in_row[0] : in_row[1]],
            title=shorten(part.title),
        )

    def _side(self, read: _Row, number: int, place: int, start: int, size: int) -> Block:
        side, special = read.sides[number][place], self._specials[number]
        return side_block(_address("seen", number, place), side, self.tokenizer, special, start, size)

    def batch_of(self, row: int) -> tuple[int, int]:
        return batch_bounds(self._corpus, row)

    def matches(self, start: int, stop: int, wanted: Filter) -> np.ndarray:
        batch = read_rows(self._corpus, start, stop)
        fits = document_matches(batch.column("document_ids"), replace(wanted, id=""))
        if wanted.id:
            names = [each.tobytes().hex() for each in fixed_bytes(batch.column("sequence_id"))]
            of_sequence = np.array([name.startswith(wanted.id.lower()) for name in names])
            fits &= of_sequence | document_matches(batch.column("document_ids"), Filter(id=wanted.id))
        fits &= within(list_lengths(self._corpus, "tokens", start, stop), wanted.least, wanted.most)
        if wanted.hides and self._maskers and fits.any():
            places = np.flatnonzero(fits)
            masker = self._maskers[min(max(wanted.masks, 0), len(self._maskers) - 1)]
            fits[places] = within(self._hidden(masker, start + places), wanted.least_hidden, wanted.most_hidden)
        return fits

    @property
    def measures(self) -> tuple[Measure, ...]:
        lengths = partial(list_lengths, self._corpus)
        columns = [
            Measure("tokens", "tokens", partial(lengths, "tokens"), filters=("least", "most")),
            Measure("documents", "documents", partial(lengths, "document_ids")),
        ]
        if len(self.sources) > 1:
            columns.append(Measure("source", "first source", self._first_source, SOME, None, ("source",)))
        for number, masker in enumerate(self._maskers):
            read = partial(self._hidden_range, masker)
            bounds, fixed = ("least_hidden", "most_hidden"), (("masks", str(number)),)
            limit = SOME if masker.stored else FEW
            columns.append(Measure(f"hidden-{number}", f"% hidden, {masker.name}", read, limit, 1, bounds, fixed))
        if self._links and not self._links.missing:
            columns.append(Measure("similarity", "similarity", self._similarity, FEW, 3))
        return tuple(columns)

    def _first_source(self, start: int, stop: int) -> np.ndarray:
        names = pc.list_element(read_rows(self._corpus, start, stop).column("document_ids"), 0)
        result: np.ndarray = pc.replace_substring_regex(names, ":.*", "").to_numpy(zero_copy_only=False)
        return result

    def _hidden(self, masker: Masker, rows: np.ndarray) -> np.ndarray:
        batch = self._corpus.take(rows)
        return hidden_shares(masker.masks(batch, rows, 0), batch.tokens.lengths)

    def _hidden_range(self, masker: Masker, start: int, stop: int) -> np.ndarray:
        return self._hidden(masker, np.arange(start, stop))

    def _similarity(self, start: int, stop: int) -> np.ndarray:
        """Mean cosine of the documents of each row with the document before, where it is known."""
        assert self._links
        batch = self._corpus.take(np.arange(start, stop))
        means = np.full(stop - start, np.nan)
        for row in range(stop - start):
            links = self._links.of(parts_of(batch, row), cluster_of(batch, row))
            known = [link.cosine for link in links if link.cosine is not None]
            if known:
                means[row] = np.mean(known)
        return means

    def beginning(self, row: int) -> tuple[str, str]:
        name = read_rows(self._corpus, row, row + 1).column("document_ids")[0][0].as_py()
        return name, self.tokenizer.decode(self._corpus.tokens(row)[:BEGINNING])

    def texts(self, row: int) -> list[tuple[int, str]]:
        tokens = self._corpus.tokens(row)
        pieces = [tokens[first : first + MORE] for first in range(0, len(tokens), MORE)]
        return [(len(piece), self.tokenizer.decode(piece)) for piece in pieces]


def _address(what: str, number: int, place: int) -> str:
    return f"{what}-{'' if number == _TEXT else number}-{place}"


def _density(masks: MaskBatch, tokens: int) -> tuple[Kind | None, ...]:
    """The kind of the spans in each of ``_BINS`` equal parts of a row; None for a part without spans."""
    bins: list[Kind | None] = [None] * min(_BINS, max(tokens, 1))
    scale = len(bins) / max(tokens, 1)
    columns = (masks.span_starts[0], masks.span_lengths[0], masks.span_flags[0])
    for start, length, flag in zip(*(column.tolist() for column in columns), strict=True):
        kind = treatment(flag)
        for place in range(int(start * scale), min(int((start + length - 1) * scale) + 1, len(bins))):
            if bins[place] is None or kind != "candidate":
                bins[place] = kind
    return tuple(bins)
