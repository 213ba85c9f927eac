"""Rows of a corpus as pages: for each mask set the text, the reasons for its spans, source and target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpora.errors import FarspanError
from corpora.printing import format_count, option_text
from corpora.schemas.corpus import Corpus
from corpora.schemas.sequences import SequenceBatch, fixed_bytes
from corpora.tokenizers.load import load_tokenizer_of
from objectives.api.mask_set import MaskSet
from objectives.api.masks import IN_TARGET, MaskBatch
from objectives.api.protocol import OBJECTIVES, CorpusFacts, Objective, draw_key, mask_key
from objectives.api.special_tokens import SpecialTokens
from objectives.rendering.stream import StreamLayout
from pipelines.masks.job import equip_objective
from pipelines.pages.filters import batch_bounds, list_lengths, read_rows
from pipelines.pages.lookups import Links, Titles
from pipelines.pages.page import (
    BEGINNING,
    FEW,
    SOME,
    Block,
    Column,
    Link,
    Measure,
    PageOptions,
    Part,
    Reason,
    RowPage,
)
from pipelines.pages.piece import Kind, Piece, plain_pieces, shorten
from pipelines.pages.row import (
    cluster_of,
    decode_pieces,
    kinds_of,
    parts_of,
    reasons_of,
    side_blocks,
    span_pieces,
    stream_block,
    target_spans,
    treatment,
)

_BINS = 400  # bins of the picture of a row
_TEXT = -1  # number of the row without masks
_SPAN_TEXT = 80  # maximum characters of a span beside its reason


@dataclass(frozen=True)
class Masker:
    """A source of masks for a corpus's rows."""

    name: str  # name of the mask set's folder, or of the objective
    objective: Objective
    special: SpecialTokens
    # function that returns the masks of a batch, given its row numbers in the corpus and the draw
    masks: Callable[[SequenceBatch, np.ndarray, int], MaskBatch]
    draws: int = 1  # number of draws to choose from
    stored: bool = False  # True for a mask set, whose masks are only read

    @classmethod
    def from_mask_set(cls, name: str, stored: MaskSet) -> Masker:
        """Use stored masks; a draw beyond the last is the last."""
        return cls(
            name,
            stored.objective,
            stored.special_tokens,
            lambda batch, rows, draw: stored.masks(batch, rows, min(draw, stored.draws - 1)),
            stored.draws,
            stored=True,
        )

    @classmethod
    def from_objective(
        cls,
        corpus: Corpus,
        name: str,
        preset: str | None = None,
        options: Mapping[str, Any] | None = None,
        scorer: str | None = None,
        seed: int = 0,
    ) -> Masker:
        """Draw the masks that ``farspan mask`` would store, by an objective or the preset of one."""
        owner, preset = OBJECTIVES.resolve(name, preset)
        objective = equip_objective(corpus.folder, owner, preset, options or {}, scorer)

        def masks(batch: SequenceBatch, rows: np.ndarray, draw: int) -> MaskBatch:
            return objective.mask(batch, draw_key(mask_key(seed, objective), draw))

        return cls(name, objective, objective.validate(CorpusFacts.of(corpus.manifest)), masks)


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
        """Open a corpus; ``layout`` shows rows as streams, None as source and target of each mask set."""
        self.name, self.folder = name, corpus.folder
        self._corpus, self._maskers, self._links, self._titles = corpus, tuple(maskers), links, titles
        self.tokenizer = load_tokenizer_of(corpus.folder)
        self.sources = tuple(sorted(corpus.manifest.counts))
        self.mask_sets = tuple(masker.name for masker in maskers)
        self.draws = max([masker.draws for masker in maskers], default=1)
        self.measures = tuple(self._list_measures())
        totals = corpus.manifest.totals
        counts = (len(corpus), totals["tokens"], totals["documents"])
        self.summary = ", ".join(map(format_count, counts, ("row", "token", "document")))
        self._layout = layout
        if layout and maskers and len(corpus):
            self.page(0, PageOptions())  # refuses objectives without a target before anything is shown

    def __len__(self) -> int:
        return len(self._corpus)

    def page(self, row: int, options: PageOptions) -> RowPage:
        rows = np.array([row])
        batch = self._corpus.take(rows)
        every = self._titles.with_titles(parts_of(batch)) if self._titles else parts_of(batch)
        shown = options.shown_parts(len(every))
        cluster, tokens = cluster_of(batch), len(batch.tokens[0])
        facts = [
            ("sequence", batch.sequence_id(0).hex()),
            ("tokens", f"{tokens:,} of at most {self._corpus.manifest.config['sequence_length']:,} positions"),
            ("documents", f"{len(every):,}"),
        ]
        if cluster is not None:
            facts.append(("cluster", str(cluster)))
        if self.draws > 1:
            facts.append(("draw", f"{options.draw} of {self.draws}"))
        links: list[Link] = []
        if self._links:
            before = max(shown.start - 1, 0)
            links = self._links.of(every[before : shown.stop], cluster)[shown.start - before :]
        columns = [
            self._column(number, batch, masker.masks(batch, rows, options.draw), every, shown, options)
            for number, masker in enumerate(self._maskers)
        ]
        return RowPage(
            row=row,
            heading=f"row {row:,} of {len(self):,}",
            facts=tuple(facts),
            bands=(tuple(columns) or (self._text(batch, every, shown, options.size),),),
            tokens=tokens,
            parts=tuple(every[shown.start : shown.stop]),
            first_part=shown.start,
            all_parts=len(every),
            links=tuple(links),
            missing=tuple(each.missing for each in (self._links, self._titles) if each and each.missing),
        )

    def _text(self, batch: SequenceBatch, parts: Sequence[Part], shown: range, size: int) -> Column:
        """The row without masks."""
        seen: tuple[Block, ...] = ()
        if self._layout:
            described = self._corpus.manifest.tokenizer
            special = self._layout.text_tokens(described["vocab_size"], described["owned_tokens"])
            stream = self._layout.stream_text(batch, special)
            seen = (stream_block("seen-", stream, self.tokenizer, special.ids).cut(0, size),)
        blocks = (self._part_block(_TEXT, number, batch, None, parts[number]) for number in shown)
        return Column("text", "", tuple(block.cut(0, size) for block in blocks), seen=seen)

    def _column(
        self,
        number: int,
        batch: SequenceBatch,
        masks: MaskBatch,
        parts: Sequence[Part],
        shown: range,
        options: PageOptions,
    ) -> Column:
        """The row with mask set ``number``."""
        masker, reasons = self._maskers[number], reasons_of(masks)
        blocks = [self._part_block(number, place, batch, masks, parts[place]) for place in shown]
        starts = np.array([part.start for part in parts])
        picture, bins = draw_spans(masks, len(batch.tokens[0]))
        return Column(
            heading=masker.name,
            note=target_spans(masks),
            blocks=tuple(block.cut(0, options.size) for block in blocks),
            objective=masker.objective.name,
            options=describe_options(masker.objective),
            share=float(hidden_shares(masks, batch.tokens.lengths)[0]),
            number=number,
            kinds=tuple(kinds_of(masks)),
            picture=tuple(picture),
            bins=bins,
            reasons=tuple(self._with_text(reason, batch, masks, starts) for reason in reasons[: options.reasons]),
            more_reasons=max(len(reasons) - options.reasons, 0),
            seen=tuple(block.cut(0, options.size) for block in self._sides(number, batch, masks)),
        )

    def _part_block(self, number: int, place: int, batch: SequenceBatch, masks: MaskBatch | None, part: Part) -> Block:
        """The text of a part, cut at the spans of ``masks``; ``number`` is that of the mask set, or ``_TEXT``."""
        tokens = batch.tokens[0]

        def read(start: int, stop: int) -> list[Piece]:
            start, stop = start + part.start, stop + part.start
            if masks is None:
                pieces = plain_pieces(self.tokenizer, tokens, start, stop, (part.start, part.stop))
            else:
                pieces = span_pieces(self.tokenizer, batch, masks, start, stop)
            return [replace(piece, start=piece.start - part.start) for piece in pieces]

        address = f"text-{'' if number == _TEXT else number}-{place}"
        own, title = tokens[part.start : part.stop], shorten(part.title)
        return Block(address, part.document_id, part.place, len(own), read, own, part=place, title=title)

    def _with_text(self, reason: Reason, batch: SequenceBatch, masks: MaskBatch, starts: np.ndarray) -> Reason:
        """Add the part of a span and its first ``_SPAN_TEXT`` characters."""
        stop = min(reason.stop, reason.start + _SPAN_TEXT)
        pieces = span_pieces(self.tokenizer, batch, masks, reason.start, stop)
        text = " ".join("".join(piece.text for piece in pieces).split())
        if len(text) > _SPAN_TEXT or stop < reason.stop:
            text = text[:_SPAN_TEXT] + " …"
        return replace(reason, part=int(np.searchsorted(starts, reason.start, side="right")) - 1, text=text)

    def _sides(self, number: int, batch: SequenceBatch, masks: MaskBatch) -> list[Block]:
        """Render the row with mask set ``number``."""
        masker, address = self._maskers[number], f"seen-{number}"
        examples = masker.objective.render(batch, masks, masker.special)
        if not self._layout:
            return side_blocks(address, examples, self.tokenizer, masker.special.ids)
        try:
            stream = self._layout.stream_examples(examples, masker.special)
        except FarspanError as error:
            raise FarspanError(f"--layout stream: {masker.name}: {error}") from error
        return [stream_block(address, stream, self.tokenizer, masker.special.ids)]

    def batch_of(self, row: int) -> tuple[int, int]:
        return batch_bounds(self._corpus, row)

    def ids(self, start: int, stop: int) -> tuple[pa.Array, pa.Array]:
        batch = read_rows(self._corpus, start, stop)
        names = [each.tobytes().hex() for each in fixed_bytes(batch.column("sequence_id"))]
        return pa.array(names, pa.string()), batch.column("document_ids")

    def _list_measures(self) -> Iterator[Measure]:
        lengths = partial(list_lengths, self._corpus)
        yield Measure("tokens", "tokens", partial(lengths, "tokens"), filters=("least", "most"))
        yield Measure("documents", "documents", partial(lengths, "document_ids"))
        if len(self.sources) > 1:
            yield Measure("source", "first source", self._first_source, SOME, None, ("source",))
        for number, masker in enumerate(self._maskers):
            bounds, fixed = ("least_hidden", "most_hidden"), (("masks", str(number)),)
            limit, read = SOME if masker.stored else FEW, partial(self._hidden, masker)
            yield Measure(f"hidden-{number}", f"% hidden, {masker.name}", read, limit, 1, bounds, fixed)
        if self._links and not self._links.missing:
            yield Measure("similarity", "similarity", self._similarity, FEW, 3)

    def _first_source(self, start: int, stop: int) -> np.ndarray:
        names = pc.list_element(read_rows(self._corpus, start, stop).column("document_ids"), 0)
        return pc.replace_substring_regex(names, ":.*", "").to_numpy(zero_copy_only=False)

    def _hidden(self, masker: Masker, start: int, stop: int) -> np.ndarray:
        rows = np.arange(start, stop)
        batch = self._corpus.take(rows)
        return hidden_shares(masker.masks(batch, rows, 0), batch.tokens.lengths)

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

    def texts(self, row: int) -> Iterator[tuple[int, str]]:
        return decode_pieces(self.tokenizer, self._corpus.tokens(row))


def describe_options(objective: Objective) -> str:
    """An objective's options in one line."""
    return ", ".join(f"{name}={option_text(value)}" for name, value in objective.options.items())


def hidden_shares(masks: MaskBatch, tokens: np.ndarray) -> np.ndarray:
    """Percentage of each row's ``(n,)`` tokens that are in targets or labels; ``(n,)`` float64."""
    in_target = np.where(masks.span_flags.values & IN_TARGET != 0, masks.span_lengths.values, 0)
    ends = np.concatenate([[0], np.cumsum(in_target)])
    offsets = masks.span_flags.offsets
    return 100 * (ends[offsets[1:]] - ends[offsets[:-1]]) / np.maximum(tokens, 1)


def draw_spans(masks: MaskBatch, tokens: int) -> tuple[list[tuple[int, int, Kind]], int]:
    """The spans of a row in small: runs of one kind as (first bin, bins, kind), and the number of bins."""
    bins: list[Kind | None] = [None] * min(_BINS, max(tokens, 1))
    scale = len(bins) / max(tokens, 1)
    starts, stops = masks.span_starts[0], masks.span_starts[0] + masks.span_lengths[0]
    spans = zip(starts.tolist(), stops.tolist(), map(treatment, masks.span_flags[0].tolist()), strict=True)
    for start, stop, kind in sorted(spans, key=lambda span: span[2] != "candidate"):  # which others may cover
        first, last = int(start * scale), min(int((stop - 1) * scale) + 1, len(bins))
        bins[first:last] = [kind] * (last - first)
    picture, first = [], 0
    for kind_of_run, run in groupby(bins):
        count = len(list(run))
        if kind_of_run is not None:
            picture.append((first, count, kind_of_run))
        first += count
    return picture, len(bins)
