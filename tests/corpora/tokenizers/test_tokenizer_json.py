"""A tokenizer.json that contradicts itself is refused before the library sees it."""

from __future__ import annotations

import json

import pytest

from corpora.errors import FarspanError
from corpora.tokenizers.tokenizer_json import load, parse


def model(prefix: str, merges: list) -> bytes:
    vocab = {piece: number for number, piece in enumerate(["a", "b", "##b", "ab"])}
    made = {"type": "BPE", "vocab": vocab, "merges": merges, "continuing_subword_prefix": prefix}
    return json.dumps({"model": made}).encode()


@pytest.mark.parametrize("merges", [[["a", "##b"]], ["a ##b"], []])
def test_a_prefix_of_all_merges_is_kept(merges):
    tokenizer, _, _ = load({**parse(model("##", merges)), "added_tokens": []})
    assert tokenizer.encode("ab").tokens == (["ab"] if merges else ["a", "##b"])


@pytest.mark.parametrize("merge", [["a", "b"], "a b", ["a"], [], None, 7])
def test_a_merge_without_the_prefix_is_refused(merge):
    """The library would end the process."""
    with pytest.raises(FarspanError, match=r"merge .* has no continuing_subword_prefix '##'; restore the file$"):
        parse(model("##", [["a", "##b"], merge]))
