from __future__ import annotations

from corpora.tokenizers.protocol import special_ids


def test_special_ids_are_those_of_no_text():
    owned = {"<pad>": 5, "<unk>": 2, "<bos>": 0, "<mask>": 9, "[CLS]": 0}
    assert special_ids(owned).tolist() == [0, 5, 9]
    assert special_ids({"<unk>": 2}).tolist() == []
