"""Documents as pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow.compute as pc

from corpora.printing import format_count
from corpora.schemas.documents import DocumentSet
from corpora.storage.ragged import Ragged
from corpora.tokenizers.load import load_tokenizer_of
from corpora.tokenizers.protocol import Tokenizer
from pipelines.pages.blocks import no_block, token_block
from pipelines.pages.filters import Filter, batch_bounds, list_lengths, read_rows, within
from pipelines.pages.measures import Measure
from pipelines.pages.page import BEGINNING, MORE, Block, Column, PageOptions, RowPage
from pipelines.pages.piece import Piece, cut_pieces
from pipelines.pages.titles import shorten

SENTENCE = "|"  # mark of the beginning of a sentence


class DocumentRows:
    """A ``Subject``: tokenised documents."""

    kind = "documents"
    draws = 1
    mask_sets: tuple[str, ...] = ()

    def __init__(self, name: str, documents: DocumentSet) -> None:
        self.name, self.folder = name, documents.folder
        self._documents, self.tokenizer = documents, load_tokenizer_of(documents.folder)
        self.sources = tuple(sorted(documents.manifest.counts))
        tokens = documents.manifest.totals["tokens"]
        self.summary = f"{format_count(len(documents), 'document')}, {format_count(tokens, 'token')}"

    def __len__(self) -> int:
        return len(self._documents)

    def page(self, row: int, options: PageOptions) -> RowPage:
        table = self._documents.take([row])
        values = table.drop_columns(["tokens", "sentence_starts"]).to_pylist()[0]
        tokens, sentences = (len(table.column(name)[0]) for name in ("tokens", "sentence_starts"))
        facts = [("source", values["source"]), ("tokens", f"{tokens:,}"), ("sentences", f"{sentences:,}")]
        if values["cluster"] is not None:
            facts.append(("cluster", str(values["cluster"])))
        facts.append(("split", "held out" if values["held_out"] else "train"))
        block = self._text(row, 0, options.size)
        return RowPage(
            row,
            f"document {row:,} of {len(self):,}",
            tuple(facts),
            ((Column("text", f"{SENTENCE} marks the beginning of a sentence", (block,)),),),
            tokens,
        )

    def block(self, row: int, address: str, start: int, size: int, options: PageOptions) -> Block:
        if address != "document":
            raise no_block(address)
        return self._text(row, start, size)

    def _text(self, row: int, start: int, size: int) -> Block:
        columns = self._documents.take([row]).select(["document_id", "sentence_starts"])
        name, starts = columns[0][0].as_py(), columns[1].combine_chunks().values.to_numpy()
        tokens, title = document_tokens(self._documents, row), self._documents.title(row)
        block = token_block("document", name, self.tokenizer, tokens, start, size, part=0, title=title)
        return replace(block, pieces=tuple(_sentences(self.tokenizer, tokens, block.start, block.stop, starts)))

    def batch_of(self, row: int) -> tuple[int, int]:
        return batch_bounds(self._documents, row)

    def matches(self, start: int, stop: int, wanted: Filter) -> np.ndarray:
        batch = read_rows(self._documents, start, stop)
        fits = within(list_lengths(self._documents, "tokens", start, stop), wanted.least, wanted.most)
        if wanted.source:
            fits &= pc.equal(batch.column("source"), wanted.source).to_numpy(zero_copy_only=False)
        if wanted.id:
            fits &= pc.match_substring(batch.column("document_id"), wanted.id).to_numpy(zero_copy_only=False)
        return fits

    @property
    def measures(self) -> tuple[Measure, ...]:
        lengths = partial(list_lengths, self._documents)
        return (
            Measure("tokens", "tokens", partial(lengths, "tokens"), filters=("least", "most")),
            Measure("sentences", "sentences", partial(lengths, "sentence_starts")),
            Measure("source", "source", self._source, decimals=None, filters=("source",)),
            Measure("split", "split", self._split, decimals=None),
        )

    def _source(self, start: int, stop: int) -> np.ndarray:
        names: np.ndarray = read_rows(self._documents, start, stop).column("source").to_numpy(zero_copy_only=False)
        return names

    def _split(self, start: int, stop: int) -> np.ndarray:
        held_out = read_rows(self._documents, start, stop).column("held_out").to_numpy(zero_copy_only=False)
        return np.where(held_out, "held out", "train").astype(object)

    def beginning(self, row: int) -> tuple[str, str]:
        name = read_rows(self._documents, row, row + 1).column("document_id")[0].as_py()
        text = self.tokenizer.decode(document_tokens(self._documents, row)[:BEGINNING])
        return name, " · ".join(filter(None, (shorten(self._documents.title(row)), text)))

    def texts(self, row: int) -> Iterator[tuple[int, str]]:
        """The title, if there is one, and the text."""
        if title := self._documents.title(row):
            yield 0, f"{title}\n"
        tokens = document_tokens(self._documents, row)
        for first in range(0, len(tokens), MORE):
            piece = tokens[first : first + MORE]
            yield len(piece), self.tokenizer.decode(piece)


def _sentences(tokenizer: Tokenizer, tokens: np.ndarray, start: int, stop: int, starts: np.ndarray) -> Iterator[Piece]:
    """Tokens ``start:stop`` of a document, with a mark before each sentence but the first."""
    inner = starts[(starts > start) & (starts < stop)].tolist()
    edges = [start, *inner, stop]
    for piece in cut_pieces(tokenizer, tokens, edges, [("text", -1)] * (len(inner) + 1), (0, len(tokens))):
        if (piece.start and piece.start in inner) or (piece.start == start and start in starts[1:]):
            yield Piece(SENTENCE, "boundary", piece.start, 0)
        yield piece


def document_tokens(documents: DocumentSet, row: int) -> np.ndarray:
    """Zero-copy view of a document's tokens."""
    return Ragged.from_arrow(read_rows(documents, row, row + 1).column("tokens"))[0]
