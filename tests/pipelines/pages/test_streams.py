"""Rows as streams: the page has the ids and labels that `farspan.Dataset` gives to decoders, with or without masks."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

import farspan
from corpora.errors import FarspanError
from objectives.api.mask_set import MaskSet
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.inspect.options import Show
from pipelines.inspect.show import show
from pipelines.masks.job import plan
from pipelines.masks.options import Masking
from pipelines.pages.options import Selection
from pipelines.pages.page import PageOptions
from pipelines.pages.subjects import open_subjects
from tests.artefacts import make_corpus

FIM = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A corpus, and mask sets of a mixture, of spans cut from the middle, and of an encoder."""
    root = tmp_path_factory.mktemp("streams")
    folders = {"corpus": make_corpus(str(root / "corpus"), words=300, room_per_document=3)}
    for objective, options in (
        ("mixture", {}),
        ("fill_in_the_middle", {"append": True}),
        ("cross_document", {}),
    ):
        folders[objective] = str(root / objective)
        masking = Masking(corpus=folders["corpus"], output=folders[objective], objective=objective, options=options)
        run_job(plan(masking), Engine(workers=1))
    return folders


def printed(folder: str, row: int, **named) -> str:
    out = StringIO()
    show(Show(artefact=folder, row=row, **named), Console(file=out, soft_wrap=True, highlight=False))
    return out.getvalue()


@pytest.mark.parametrize("masks", [None, "mixture", "fill_in_the_middle"])
@pytest.mark.parametrize("row", [0, 5])
def test_a_stream_is_what_a_decoder_gets(folders, masks, row):
    dataset = farspan.Dataset(folders["corpus"], masks and folders[masks], layout="stream")
    (subject,) = open_subjects(Selection(artefact=(folders[masks or "corpus"],), layout="stream"))
    ((column,),) = subject.page(row, PageOptions()).bands
    (block,) = column.seen
    item = dataset[row]
    assert block.heading == "stream"
    assert block.ids.tolist() == item["input_ids"].tolist()
    labelled = [
        place for piece in block.pieces if piece.marked for place in range(piece.start, piece.start + piece.tokens)
    ]
    assert labelled == [place for place, label in enumerate(item["labels"].tolist()) if label != -100]
    assert 0 < len(labelled) < len(block.ids)
    more = subject.block(row, block.address, 3, 4, PageOptions())
    assert more.ids.tolist() == block.ids[3:7].tolist()
    assert f"{len(labelled):,} with labels are marked" in block.note


def test_a_row_of_a_mixture_names_its_component_and_its_mode(folders):
    """In both layouts; the labels begin where the source ends."""
    modes = {"r": "[NLU]", "x": "[NLG]", "s": "[S2S]"}
    components = MaskSet(folders["mixture"]).take(range(12)).components.to_pylist()
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


def test_an_encoder_has_no_stream(folders):
    """Refused when it is opened, before a page is served."""
    message = "^--layout stream: cross_document: the objective predicts tokens in their places .* a target$"
    with pytest.raises(FarspanError, match=message):
        open_subjects(Selection(artefact=(folders["cross_document"],), layout="stream"))


def test_only_rows_of_a_corpus_have_streams(made):
    with pytest.raises(FarspanError, match="--layout stream: there is no corpus among the artefacts"):
        printed(made["documents"], 0, layout="stream")
