"""Documents as pages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from corpora.schemas.documents import DocumentSet
from pipelines.view.document_rows import DocumentRows
from pipelines.view.filters import Filter
from pipelines.view.page import FIRST, PageOptions
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
    assert "".join(piece.text for piece in column.blocks[0].pieces) == small_tokenizer().decode(values["tokens"])


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
