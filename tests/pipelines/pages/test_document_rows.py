"""Documents as pages, and filters of rows from addresses."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from corpora.schemas.documents import DocumentSet
from pipelines.pages.document_rows import DocumentRows
from pipelines.pages.filters import Filter, document_matches
from pipelines.pages.page import FIRST, PageOptions
from pipelines.view.search import search
from tests.artefacts import make_documents, small_tokenizer


@pytest.fixture(scope="module")
def documents(made):
    return DocumentSet(made["documents"])


def test_a_page_has_the_document(documents):
    subject = DocumentRows("documents", documents)
    (values,) = documents.take([43]).to_pylist()
    page = subject.page(43, PageOptions())
    facts = dict(page.facts)
    assert facts["source"] == values["source"]
    assert facts["tokens"] == str(len(values["tokens"]))
    assert facts["split"] == ("held out" if values["held_out"] else "train")
    ((column,),) = page.bands
    pieces = column.blocks[0].pieces
    assert "".join(piece.text for piece in pieces if piece.tokens) == small_tokenizer().decode(values["tokens"])
    marks = [piece.start for piece in pieces if piece.kind == "boundary"]
    assert marks == values["sentence_starts"][1:]
    for start in (marks[0], marks[0] + 1):  # a range that begins at a sentence has its mark, too
        block = subject.block(43, "document", start, 10**6, PageOptions())
        assert [piece.start for piece in block.pieces if piece.kind == "boundary"] == [m for m in marks if m >= start]


def test_a_long_document_is_folded_and_comes_piece_by_piece(tmp_path):
    folder = make_documents(str(tmp_path / "long"), shards=1, documents=2, max_tokens=20_000)
    documents = DocumentSet(folder)
    row = int(np.argmax([len(documents.take([row]).column("tokens")[0]) for row in range(2)]))
    subject = DocumentRows("long", documents)
    ((column,),) = subject.page(row, PageOptions()).bands
    (block,) = column.blocks
    assert (block.stop, block.total > FIRST) == (FIRST, True)
    more = subject.block(row, block.address, block.stop, 100, PageOptions())
    tokens = documents.take([row]).column("tokens")[0].as_py()
    assert more.ids.tolist() == tokens[FIRST : FIRST + 100]
    with pytest.raises(FarspanError, match="no text 'other'"):
        subject.block(row, "other", 0, 100, PageOptions())


def test_filters(documents):
    subject = DocumentRows("documents", documents)
    first, stop = subject.batch_of(20)
    table = pa.Table.to_pylist(documents.take(range(first, stop)))
    lengths = sorted(len(values["tokens"]) for values in table)
    for wanted, fits in (
        (Filter(source="other"), lambda values: values["source"] == "other"),
        (Filter(id=":0:2"), lambda values: ":0:2" in values["document_id"]),
        (Filter(least=lengths[5], most=lengths[9]), lambda v: lengths[5] <= len(v["tokens"]) <= lengths[9]),
    ):
        assert subject.matches(first, stop, wanted).tolist() == [fits(values) for values in table]


def test_a_text_is_also_searched_in_titles(tmp_path):
    titles = ("About birds", None, "The sea")
    folder = make_documents(str(tmp_path / "titled"), shards=1, documents=9, titles=titles)
    subject = DocumentRows("titled", DocumentSet(folder))
    assert search(subject, Filter(text="the SEA"), 0, 1).row == 2
    assert search(subject, Filter(text="the SEA"), 3, 1).row == 5
    assert search(subject, Filter(text="the river"), 0, 1).row is None


def test_an_address_holds_a_filter():
    given = {"source": " wiki ", "least": "10", "most_hidden": "2.5", "rows": "9,3,3", "text": " a ", "draw": "7"}
    assert Filter.parse(given) == Filter(source="wiki", least=10, most_hidden=2.5, rows=(3, 9), text=" a ")
    assert not Filter.parse({"rows": "1"}).reads
    assert Filter.parse({"least": "0"}).reads


@pytest.mark.parametrize(("key", "value"), [("least", "ten"), ("rows", "1,b"), ("masks", "x"), ("least_hidden", "%")])
def test_other_values_are_refused(key, value):
    with pytest.raises(FarspanError, match=f"filter {key}="):
        Filter.parse({key: value})


def test_rows_by_their_documents():
    lists = pa.array([["a:1", "b:2"], [], ["a:2"], ["ab:1"]]).slice(0, 4)
    assert document_matches(lists, Filter(source="a")).tolist() == [True, False, True, False]
    assert document_matches(lists, Filter(source="a", id="2")).tolist() == [True, False, True, False]
    assert document_matches(lists.slice(2), Filter(id="b:")).tolist() == [False, True]
