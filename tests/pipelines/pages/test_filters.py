"""Filters from addresses, and rows that fit them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from pipelines.pages.filters import Filter, document_matches


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
