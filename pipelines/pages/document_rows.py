"""Documents as pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from corpora.printing import format_count
from corpora.schemas.documents import DocumentSet
from corpora.storage.ragged import Ragged
from corpora.tokenizers.load import load_tokenizer_of
from corpora.tokenizers.protocol import Tokenizer
from pipelines.pages.filters import batch_bounds, list_lengths, read_column, read_rows
from pipelines.pages.page import BEGINNING, Column, Measure, PageOptions, RowPage
from pipelines.pages.piece import Piece, cut_pieces, shorten
from pipelines.pages.row import decode_pieces, token_block

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
        lengths = partial(list_lengths, documents)
        self.measures: tuple[Measure, ...] = (
            Measure("tokens", "tokens", partial(lengths, "tokens"), filters=("least", "most")),
            Measure("sentences", "sentences", partial(lengths, "sentence_starts")),
            Measure("source", "source", partial(read_column, documents, "source"), decimals=None, filters=("source",)),
            Measure("split", "split", self._split, decimals=None),
        )

    def __len__(self) -> int:
        return len(self._documents)

    def page(self, row: int, options: PageOptions) -> RowPage:
        table = self._documents.take([row])
        values = table.drop_columns(["tokens", "sentence_starts"]).to_pylist()[0]
        tokens, starts = document_tokens(self._documents, row), table["sentence_starts"].combine_chunks().values
        facts = [("source", values["source"]), ("tokens", f"{len(tokens):,}"), ("sentences", f"{len(starts):,}")]
        if values["cluster"] is not None:
            facts.append(("cluster", str(values["cluster"])))
        facts.append(("split", "held out" if values["held_out"] else "train"))
        read = partial(_mark_sentences, self.tokenizer, tokens, starts.to_numpy())
        title = self._documents.title(row)
        block = token_block("document", values["document_id"], self.tokenizer, tokens, 0, title)
        block = replace(block, read=read).cut(0, options.size)
        column = Column("text", f"{SENTENCE} marks the beginning of a sentence", (block,))
        return RowPage(row, f"document {row:,} of {len(self):,}", tuple(facts), ((column,),), len(tokens))

    def batch_of(self, row: int) -> tuple[int, int]:
        return batch_bounds(self._documents, row)

    def ids(self, start: int, stop: int) -> tuple[pa.Array, pa.Array]:
        names = read_rows(self._documents, start, stop).column("document_id")
        return names, pa.ListArray.from_arrays(np.arange(len(names) + 1, dtype=np.int32), names)

    def _split(self, start: int, stop: int) -> np.ndarray:
        return np.where(read_column(self._documents, "held_out", start, stop), "held out", "train").astype(object)

    def beginning(self, row: int) -> tuple[str, str]:
        name = read_rows(self._documents, row, row + 1).column("document_id")[0].as_py()
        text = self.tokenizer.decode(document_tokens(self._documents, row)[:BEGINNING])
        return name, " · ".join(filter(None, (shorten(self._documents.title(row)), text)))

    def texts(self, row: int) -> Iterator[tuple[int, str]]:
        """The title, if there is one, and the text."""
        if title := self._documents.title(row):
            yield 0, f"{title}\n"
        yield from decode_pieces(self.tokenizer, document_tokens(self._documents, row))


def _mark_sentences(
    tokenizer: Tokenizer, tokens: np.ndarray, starts: np.ndarray, start: int, stop: int
) -> Iterator[Piece]:
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
