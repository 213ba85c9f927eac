"""Rows of a corpus as pages: what `farspan show` prints, block by block; their pieces and streams."""

from io import StringIO
from itertools import chain

import numpy as np
import pytest
from rich.console import Console

import farspan
from corpora.errors import FarspanError
from corpora.printing import printable
from corpora.schemas.corpus import Corpus
from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows
from objectives.api.mask_set import MaskSet
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE, MaskBatch
from objectives.api.protocol import CorpusFacts, load_objective, mask_key
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.inspect.options import Show
from pipelines.inspect.show import show
from pipelines.masks.job import plan
from pipelines.masks.options import Masking
from pipelines.pages.corpus_rows import CorpusRows, Masker, describe_options, draw_spans, hidden_shares
from pipelines.pages.filters import Filter, matches
from pipelines.pages.options import Selection
from pipelines.pages.page import PageOptions
from pipelines.pages.piece import plain_pieces, token_pieces
from pipelines.pages.row import parts_of, reasons_of, side_blocks, span_pieces, string_block, treatment
from pipelines.pages.subjects import open_subjects
from tests.artefacts import make_corpus, small_tokenizer


def printed(folder: str, row: int, **named) -> str:
    out = StringIO()
    show(Show(artefact=folder, row=row, **named), Console(file=out, soft_wrap=True, highlight=False))
    return out.getvalue()


def text_of(blocks) -> str:
    return "".join(piece.text for block in blocks for piece in block.pieces)


def test_the_page_has_what_show_prints(made, rows):
    """The same text, reasons, source and target, under each mask set."""
    page = rows.page(5, PageOptions())
    (columns,) = page.bands
    assert [column.heading for column in columns] == ["spans", "sentences"]
    for column in columns:
        lines = printed(made[column.heading], 5).replace("⟦", "").replace("⟧", "")  # around hidden text
        assert printable(text_of(column.blocks)) in lines
        for side in column.seen:
            assert f"\n{side.heading}, {side.note}\n{printable(text_of([side]))}\n" in lines
        for reason in column.reasons:
            assert f"#{reason.rank + 1} score {reason.score:.4f} tokens {reason.start} to" in lines
            assert printable(reason.text.removesuffix(" …"))[:60] in lines
    assert len(columns[1].reasons) > 0
    (documents,) = Corpus(made["corpus"]).take(np.array([5])).document_ids.to_pylist()
    assert [part.document_id for part in page.parts] == documents


def test_spans_are_marked_with_their_kind(made, rows):
    masks = MaskSet(made["spans"]).take(np.array([5]))
    column = rows.page(5, PageOptions()).bands[0][0]
    hidden = [piece for block in column.blocks for piece in block.pieces if piece.kind == "hidden"]
    assert len(hidden) == len(masks.span_starts[0])
    assert sum(piece.tokens for piece in hidden) == masks.span_lengths[0][masks.span_flags[0] & IN_TARGET > 0].sum()
    assert column.kinds == ("hidden",)
    assert {kind for _, _, kind in column.picture} == {"hidden"}


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
        part = block.cut(start, 7)
        parts.append(part)
        assert part.stop - part.start == min(7, block.total - start) == len(part.ids)
        start = part.stop
    assert text_of(parts) == text_of([block])


def test_other_blocks_are_refused(rows):
    for address in ("text-0-999", "text-9-0", "seen-0-9", "seen--1-0", "nothing", "text-0--1", "x-0-0"):
        with pytest.raises(FarspanError, match="no text"):
            rows.page(5, PageOptions()).find(address)


def test_a_row_costs_one_record_batch(made, monkeypatch):
    """Of corpus and mask set each, however many rows there are."""
    read, original = [], ShardedRows._batch

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
        assert matches(rows, first, stop, wanted).tolist() == expected, wanted
    assert "".join(text for _, text in rows.texts(9)) == small_tokenizer().decode(corpus.tokens(9))


def test_a_corpus_alone_is_plain_text(made):
    subject = CorpusRows("corpus", Corpus(made["corpus"]))
    ((column,),) = subject.page(3, PageOptions()).bands
    batch = Corpus(made["corpus"]).take(np.array([3]))
    documents = np.split(batch.tokens[0], batch.document_starts[0][1:])
    assert text_of(column.blocks) == "".join(map(small_tokenizer().decode, documents))


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
    shares = [100 * theirs.span_lengths[row].sum() / len(batch.tokens[row]) for row in range(len(batch))]
    assert hidden_shares(theirs, batch.tokens.lengths).tolist() == shares


def test_an_unknown_objective_is_refused(made):
    with pytest.raises(FarspanError, match="is called 'spam'"):
        Masker.from_objective(Corpus(made["corpus"]), "spam")


@pytest.fixture(scope="module")
def masked_row(tmp_path_factory):
    """A row, its masks under T5's span corruption, its rendering and the names of its special tokens."""
    corpus = Corpus(make_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus"), words=300))
    objective = load_objective("span", "t5")
    special = objective.validate(CorpusFacts.of(corpus.manifest))
    batch = corpus.take(np.array([3]))
    masks = objective.mask(batch, mask_key(0, objective))
    return batch, masks, objective.render(batch, masks, special), special.ids


def test_pieces_are_the_text_of_the_parts(masked_row):
    batch, masks, *_ = masked_row
    tokenizer = small_tokenizer()
    parts = parts_of(batch)
    assert len(parts) > 1
    whole = "".join(tokenizer.decode(batch.tokens[0][part.start : part.stop]) for part in parts)
    pieces = [piece for part in parts for piece in span_pieces(tokenizer, batch, masks, part.start, part.stop)]
    assert "".join(piece.text for piece in pieces) == whole
    assert sum(piece.tokens for piece in pieces) == len(batch.tokens[0])
    hidden = [(piece.start, piece.tokens) for piece in pieces if piece.kind == "hidden"]
    assert hidden == list(zip(masks.span_starts[0].tolist(), masks.span_lengths[0].tolist(), strict=True))


@pytest.mark.parametrize("inside", [0, 1, 2])
def test_a_range_cuts_spans_at_its_edges(masked_row, inside):
    batch, masks, *_ = masked_row
    tokenizer = small_tokenizer()
    start, stop = int(masks.span_starts[0][1]), parts_of(batch)[0].stop
    pieces = span_pieces(tokenizer, batch, masks, start + inside, stop)
    whole = span_pieces(tokenizer, batch, masks, 0, stop)
    size = int(masks.span_lengths[0][1])
    after = start + max(size, inside)
    assert [piece for piece in pieces if piece.start >= after] == [piece for piece in whole if piece.start >= after]
    assert (pieces[0].span, pieces[0].tokens) == ((1, size - inside) if inside < size else (-1, pieces[0].tokens))
    assert sum(piece.tokens for piece in pieces) == stop - start - inside


def test_flags_have_the_meaning_that_the_legend_says():
    flags = (0, IN_SOURCE, IN_TARGET, VISIBLE | IN_TARGET, REPLACED | IN_TARGET)
    assert [*map(treatment, flags)] == ["candidate", "hidden", "hidden", "shown", "replaced"]


@pytest.mark.parametrize(
    ("tokens", "spans", "picture"),
    [
        (10, [(0, 2, IN_TARGET), (2, 1, IN_TARGET), (4, 2, VISIBLE)], [(0, 3, "hidden"), (4, 2, "shown")]),
        (10, [(1, 3, IN_TARGET), (4, 2, REPLACED)], [(1, 3, "hidden"), (4, 2, "replaced")]),
        (800, [(0, 1, IN_TARGET), (1, 4, 0), (700, 100, IN_TARGET)],
         [(0, 1, "hidden"), (1, 2, "candidate"), (350, 50, "hidden")]),
        (0, [], []),
    ],
)  # fmt: skip
def test_a_picture_has_a_run_for_neighbouring_bins_of_one_kind(tokens, spans, picture):
    """Of a long row, each bin stands for two tokens, and a candidate covers no other span."""
    columns = np.array(spans, np.int32).reshape(-1, 3).T
    starts, lengths, flags = (Ragged.from_rows([column], np.int32) for column in columns)
    zeros = np.zeros(1, np.int32)
    masks = MaskBatch(np.zeros((1, 16), np.uint8), starts, lengths, flags, zeros, zeros)
    assert draw_spans(masks, tokens) == (picture, min(max(tokens, 1), 400))


def test_objectives_without_ranks_scores_and_labels_give_no_reason(masked_row):
    assert reasons_of(masked_row[1]) == []


def test_source_and_target_have_every_position_once(masked_row):
    _, masks, examples, special = masked_row
    source, target = side_blocks("seen-0", examples, small_tokenizer(), special)
    assert (source.total, target.total) == (masks.source_lengths[0], masks.target_lengths[0])
    pieces = source.cut(0, source.total).pieces
    assert [piece.start for piece in pieces] == np.cumsum([0, *(piece.tokens for piece in pieces)])[:-1].tolist()
    names = [piece.text for piece in pieces if piece.kind == "special"]
    assert names == [f"<sentinel-{number}>" for number in range(len(masks.span_starts[0]))] + ["<eos>"]


def test_characters_of_several_tokens_are_whole(masked_row):
    tokenizer = small_tokenizer()
    tokens = tokenizer.encode(["fox ☃ jumps"])[0]
    (piece,) = plain_pieces(tokenizer, tokens, 0, len(tokens))
    assert piece.text == "fox ☃ jumps"
    singles = token_pieces(tokenizer, tokens, [piece])
    assert len(singles) == len(tokens)
    assert "".join(single.text for single in singles) == "fox ☃ jumps"
    assert plain_pieces(tokenizer, tokens, 2, 2) == []


@pytest.mark.parametrize(
    ("start", "size", "text"),
    [(0, 4, "0123"), (8, 4, "89"), (-3, 4, "0123"), (99, 4, ""), (0, 0, ""), (6, 100, "6789")],
)
def test_ranges_stay_inside(start, size, text):
    block = string_block("reference-0", "reference", "0123456789").cut(start, size)
    assert "".join(piece.text for piece in block.pieces) == text == "0123456789"[block.start : block.stop]
    assert (block.total, block.unit) == (10, "characters")


FIM = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A corpus, and mask sets of a mixture, of spans cut from the middle, and of an encoder."""
    root = tmp_path_factory.mktemp("streams")
    folders = {"corpus": make_corpus(str(root / "corpus"), words=300, room_per_document=3)}
    for objective, options in (("mixture", {}), ("fill_in_the_middle", {"append": True}), ("cross_document", {})):
        folders[objective] = str(root / objective)
        masking = Masking(corpus=folders["corpus"], output=folders[objective], objective=objective, options=options)
        run_job(plan(masking), Engine(workers=1))
    return folders


def stream_of(folder: str, row: int):
    """The block that shows a row as a stream."""
    (subject,) = open_subjects(Selection(artefact=(folder,), layout="stream"))
    ((column,),) = subject.page(row, PageOptions()).bands
    (block,) = column.seen
    return block


@pytest.mark.parametrize("masks", [None, "mixture", "fill_in_the_middle"])
@pytest.mark.parametrize("row", [0, 5])
def test_a_stream_is_what_a_decoder_gets(folders, masks, row):
    block = stream_of(folders[masks or "corpus"], row)
    item = farspan.Dataset(folders["corpus"], masks and folders[masks], layout="stream")[row]
    assert block.heading == "stream"
    assert block.ids.tolist() == item["input_ids"].tolist()
    marked = [range(piece.start, piece.start + piece.tokens) for piece in block.pieces if piece.marked]
    labelled = [*chain(*marked)]
    assert labelled == [place for place, label in enumerate(item["labels"].tolist()) if label != -100]
    assert 0 < len(labelled) < len(block.ids)
    assert block.cut(3, 4).ids.tolist() == block.ids[3:7].tolist()
    assert f"{len(labelled):,} with labels are marked" in block.note


def test_a_row_of_a_mixture_names_its_component_and_its_mode(folders):
    """In both layouts; the labels begin where the source ends."""
    modes = {"r": "[NLU]", "x": "[NLG]", "s": "[S2S]"}
    components = MaskSet(folders["mixture"]).take(np.arange(12)).components.to_pylist()
    assert "s" in components
    assert len(set(components)) > 2
    for row, name in enumerate(components):
        apart, stream = printed(folders["mixture"], row), printed(folders["mixture"], row, layout="stream")
        source, target = apart.split("\nsource, ")[1].split("\n\ntarget, ")
        source, target = (text.partition("\n")[2].rstrip("\n") for text in (source, target))
        assert f"\ntext, {name}: " in apart
        assert f"\ntext, {name}: " in stream
        assert source.startswith(modes[name[0]])
        assert stream.rstrip("\n").endswith(f" with labels are marked\n{source}⟨{target}⟩")


def test_a_row_cut_in_the_middle_shows_its_sentinels(folders):
    texts = [printed(folders["fill_in_the_middle"], row, layout="stream") for row in range(8)]
    cut = [text for text in texts if FIM[0] in text]
    assert cut
    for text in cut:
        assert all(sentinel in text.split("\nstream, ")[1] for sentinel in FIM)


def test_a_row_that_is_not_cut_is_all_target(folders):
    """Its source is empty, and as a stream it has labels on all ids but the first."""
    masks = MaskSet(folders["fill_in_the_middle"]).take(np.arange(12))
    plain = np.flatnonzero(masks.source_lengths == 0).tolist()
    assert 0 < len(plain) < 12
    for row in plain:
        block = stream_of(folders["fill_in_the_middle"], row)
        assert [piece.marked for piece in block.pieces] == [False] + [True] * (len(block.pieces) - 1)
        assert (block.pieces[0].tokens, len(block.ids)) == (1, int(masks.target_lengths[row]))
        apart = printed(folders["fill_in_the_middle"], row)
        hidden, target = apart.split("⟦hidden⟧\n")[1].split("\nsource, 0 positions\n")
        assert (hidden[0], hidden.rstrip()[-1]) == ("⟦", "⟧")
        assert target.endswith("<eos>\n")


def test_an_encoder_has_no_stream(folders):
    """Refused when it is opened, before a page is served."""
    with pytest.raises(FarspanError, match=r"^--layout stream: cross_document: the objective predicts .* a target$"):
        open_subjects(Selection(artefact=(folders["cross_document"],), layout="stream"))
