"""Pairs as they are printed."""

from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from corpora.printing import printable
from pipelines.inspect.options import Choice
from tests.artefacts import all_rows, make_documents, make_pairs, small_tokenizer
from tests.pipelines.inspect.test_show import shown


def test_a_pair_is_shown_with_its_answers_and_the_beginning_of_its_documents(tmp_path):
    documents = make_documents(str(tmp_path / "documents"), shards=1)
    pairs = make_pairs(str(tmp_path / "pairs"), documents, pairs=6, documents_per_pair=2)
    (row,) = (one for one in all_rows(pairs, "farspan.pairs") if one["pair_id"] == "pair-5")
    text = shown(pairs, 5)
    assert "pair 'pair-5'" in text
    assert "\nsplit validation\n" in text  # without attributes, as it has none
    assert f"query, {len(row['query'])} tokens" in text
    assert all(printable(reference) in text for reference in row["references"])
    assert [f"document {name}, " in text for name in row["document_ids"]] == [True, True]
    (first,) = (one for one in all_rows(documents) if one["document_id"] == row["document_ids"][0])
    beginning = printable(small_tokenizer().decode(first["tokens"])[:20])
    assert f"{beginning} ..." in shown(pairs, 5, width=20)
    with pytest.raises(FarspanError, match="rows 0 to 5"):
        shown(pairs, 6)
    with pytest.raises(FarspanError, match=r"--objective: .* holds pairs"):
        shown(pairs, 5, choice=Choice(objective="span"))
