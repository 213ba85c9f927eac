"""Rows of a corpus as pages: what `farspan show` prints, block by block, and no more than a few record batches read."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from corpora.errors import FarspanError
from corpora.printing import printable
from corpora.schemas.corpus import Corpus
from corpora.storage.sharded_rows import ShardedRows
from objectives.api.mask_set import MaskSet
from objectives.api.masks import IN_TARGET
from pipelines.inspect.options import Show
from pipelines.inspect.show import show
from pipelines.pages.corpus_rows import CorpusRows
from pipelines.pages.filters import Filter
from pipelines.pages.maskers import Masker, describe_options, hidden_shares
from pipelines.pages.page import PageOptions
from tests.artefacts import make_corpus, small_tokenizer


def printed(folder: str, row: int) -> str:
    out = StringIO()
    show(Show(artefact=folder, row=row), Console(file=out, soft_wrap=True, highlight=False))
    return out.getvalue().replace("⟦", "").replace("⟧", "")  # around hidden text where there are no colours


def text_of(blocks) -> str:
    return "".join(piece.text for block in blocks for piece in block.pieces)


def test_the_page_has_what_show_prints(made, rows):
    """The same text, reasons, source and target, under each mask set."""
    page = rows.page(5, PageOptions())
    (columns,) = page.bands
    assert [column.heading for column in columns] == ["spans", "sentences"]
    for column in columns:
        lines = printed(made[column.heading], 5)
        assert printable(text_of(column.blocks)) in lines
        for side in column.seen:
            assert f"\n{side.heading}, {side.note}\n{printable(text_of([side]))}\n" in lines
        for why in column.whys:
            score = f"#{why.reason.rank + 1} score {why.reason.score:.4f} tokens {why.reason.start} to"
            assert score in lines
            assert printable(why.text.removesuffix(" …"))[:60] in lines
    assert len(columns[1].whys) > 0
    assert [part.document_id for part in page.parts] == Corpus(made["corpus"]).take(np.array([5])).document_ids[
        0
    ].as_py()


def test_spans_are_marked_with_their_kind(made, rows):
    masks = MaskSet(made["spans"]).take(np.array([5]))
    column = rows.page(5, PageOptions()).bands[0][0]
    hidden = [piece for block in column.blocks for piece in block.pieces if piece.kind == "hidden"]
    assert len(hidden) == len(masks.span_starts[0])
    assert sum(piece.tokens for piece in hidden) == masks.span_lengths[0][masks.span_flags[0] & IN_TARGET > 0].sum()
    assert column.kinds == ("hidden",)
    assert set(column.density) == {None, "hidden"}


def test_a_draw_is_chosen_by_the_address(made, rows):
    other = MaskSet(made["spans"]).masks(Corpus(made["corpus"]).take(np.array([5])), np.array([5]), 1)
    column = rows.page(5, PageOptions(draw=1)).bands[0][0]
    hidden = [piece.tokens for block in column.blocks for piece in block.pieces if piece.kind == "hidden"]
    assert hidden == other.span_lengths[0].tolist()
    assert rows.draws == 2


def test_blocks_continue_where_the_page_ends(rows):
    block = rows.page(5, PageOptions()).bands[0][0].blocks[0]
    parts, start = [], 0
    while start < block.total:
        part = rows.block(5, block.address, start, 7, PageOptions())
        parts.append(part)
        assert part.stop - part.start == min(7, block.total - start) == len(part.ids)
        start = part.stop
    assert text_of(parts) == text_of([block])


@pytest.mark.parametrize(
    "address", ["text-0-999", "text-9-0", "seen-0-9", "seen--1-0", "nothing", "text-0--1", "x-0-0"]
)
def test_other_blocks_are_refused(rows, address):
    with pytest.raises(FarspanError, match="no text"):
        rows.block(5, address, 0, 10, PageOptions())


def test_a_row_costs_one_record_batch(made, monkeypatch):
    """Of corpus and mask set each, however many rows there are."""
    read = []
    original = ShardedRows._batch

    def counted(self, shard, batch):
        read.append((self.manifest.format, shard, batch))
        return original(self, shard, batch)

    monkeypatch.setattr(ShardedRows, "_batch", counted)
    corpus = Corpus(made["corpus"])
    subject = CorpusRows("corpus", corpus, [Masker.from_mask_set("spans", MaskSet(made["spans"]))])
    assert len(subject) > 24
    assert read == []
    subject.page(len(subject) - 1, PageOptions())
    (shard,), (batch,), _ = corpus.locate(np.array([len(subject) - 1]))
    assert read == [("farspan.corpus", shard, batch), ("farspan.masks", shard, batch)]


def test_filters_are_those_of_plain_python(made, rows):
    corpus, masks = Corpus(made["corpus"]), MaskSet(made["spans"])
    first, stop = rows.batch_of(9)
    assert (first, stop) == (8, 16)
    batch, own = corpus.take(np.arange(first, stop)), masks.take(np.arange(first, stop))
    lengths = batch.tokens.lengths.tolist()
    middle = sorted(lengths)[4]
    share = [100 * own.span_lengths[row].sum() / lengths[row] for row in range(8)]
    name = batch.document_ids[2].as_py()[0]
    for wanted, expected in (
        (Filter(), [True] * 8),
        (Filter(least=middle), [length >= middle for length in lengths]),
        (Filter(most=middle), [length <= middle for length in lengths]),
        (Filter(least_hidden=share[3], masks=0), [value >= share[3] for value in share]),
        (Filter(source="made"), [True] * 8),
        (Filter(source="mad"), [False] * 8),
        (Filter(id=name), [name in "".join(ids) for ids in batch.document_ids.to_pylist()]),
        (Filter(id=batch.sequence_id(6).hex()[:12]), [row == 6 for row in range(8)]),
    ):
        assert rows.matches(first, stop, wanted).tolist() == expected, wanted
    assert "".join(text for _, text in rows.texts(9)) == small_tokenizer().decode(corpus.tokens(9))


def test_a_corpus_alone_is_plain_text(made):
    subject = CorpusRows("corpus", Corpus(made["corpus"]))
    ((column,),) = subject.page(3, PageOptions()).bands
    batch = Corpus(made["corpus"]).take(np.array([3]))
    assert text_of(column.blocks) == "".join(
        small_tokenizer().decode(text) for text in np.split(batch.tokens[0], batch.document_starts[0][1:])
    )
    address = column.blocks[0].address
    assert text_of([subject.block(3, address, 0, 1_000, PageOptions())]) == text_of([column.blocks[0]])


def test_many_documents_come_in_pages(tmp_path):
    subject = CorpusRows("c", Corpus(make_corpus(str(tmp_path / "c"), shards=1, sequence_length=512)))
    page = subject.page(0, PageOptions(first_part=1, parts=2))
    assert page.all_parts > 3
    assert (page.first_part, len(page.parts), len(page.bands[0][0].blocks)) == (1, 2, 2)


@pytest.mark.parametrize("draw", [0, 1])
def test_an_objective_draws_what_is_stored(made, draw):
    corpus, rows = Corpus(made["corpus"]), np.array([4, 9])
    stored, drawn = Masker.from_mask_set("spans", MaskSet(made["spans"])), Masker.from_objective(corpus, "t5")
    assert (drawn.objective.name, stored.draws, drawn.draws) == ("span", 2, 1)
    batch = corpus.take(rows)
    ours, theirs = drawn.masks(batch, rows, draw), stored.masks(batch, rows, draw)
    assert ours.span_starts.values.tolist() == theirs.span_starts.values.tolist()
    assert describe_options(drawn.objective) == describe_options(stored.objective)
    assert "density=0.15" in describe_options(drawn.objective)
    shares = hidden_shares(theirs, batch.tokens.lengths)
    assert shares.tolist() == [
        100 * theirs.span_lengths[row].sum() / len(batch.tokens[row]) for row in range(len(batch))
    ]


def test_an_unknown_objective_is_refused(made):
    with pytest.raises(FarspanError, match="is called 'spam'"):
        Masker.from_objective(Corpus(made["corpus"]), "spam")
