"""Conversion of other exceptions into messages for users."""

import sys

import pytest

from corpora.errors import FarspanError, from_extra


def test_a_missing_library_names_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with (
        pytest.raises(FarspanError, match=r"^k-means needs faiss: pip install 'farspan\[linked\]'$"),
        from_extra("linked", "k-means"),
    ):
        import faiss  # noqa: F401


def test_a_library_that_is_there_is_imported():
    with from_extra("linked", "k-means"):
        import json.decoder as imported
    assert imported is sys.modules["json.decoder"]
