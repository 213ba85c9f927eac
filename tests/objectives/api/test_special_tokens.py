"""Numbering of special tokens behind the tokenizer's vocabulary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from objectives.api.special_tokens import DOCUMENT_SEPARATOR, MASK, SENTENCE_MASK, SpecialTokens
from tests.published_tokenizers import bart_files, pegasus_files, t5_files, tokenizer_of

ROLES = ["<pad>", "<bos>", "<eos>", "<unk>", MASK]


def test_a_tokenizer_that_owns_its_roles_gains_only_new_ones():
    special = SpecialTokens.append(100, {"<pad>": 0, "<bos>": 1, "<eos>": 2}, [DOCUMENT_SEPARATOR], sentinels=3)
    assert special.ids == {
        "<pad>": 0,
        "<bos>": 1,
        "<eos>": 2,
        "<doc-sep>": 100,
        "<sentinel-0>": 101,
        "<sentinel-1>": 102,
        "<sentinel-2>": 103,
    }
    assert special.vocab_size == 104


def test_descending_sentinels_count_down_from_the_last_id():
    special = SpecialTokens.append(100, {}, sentinels=3, order="descending")
    assert [special[name] for name in ("<pad>", "<bos>", "<eos>")] == [100, 101, 102]
    assert special.sentinels.tolist() == [105, 104, 103]
    assert special.vocab_size == 106


@given(
    st.integers(5, 1000),
    st.dictionaries(st.sampled_from(ROLES), st.integers(0, 4)),
    st.lists(st.sampled_from([DOCUMENT_SEPARATOR, MASK, "<other>"]), unique=True),
    st.integers(0, 20),
    st.sampled_from(["ascending", "descending"]),
)
def test_new_ids_are_the_next_ones_each_used_once(vocab_size, owned, names, sentinels, order):
    special = SpecialTokens.append(vocab_size, owned, names, sentinels, order)
    new = [number for name, number in special.ids.items() if name not in owned]
    assert sorted(new) == list(range(vocab_size, special.vocab_size))
    assert all(special[name] == owned[name] for name in special.ids if name in owned)
    assert set(special.ids) >= {"<pad>", "<bos>", "<eos>", *names}
    assert len(special.sentinels) == sentinels
    assert special.sentinels.dtype == np.int32


def numbered(files, names=(), sentinels=0, order="ascending"):
    tokenizer = tokenizer_of(files)
    return SpecialTokens.append(tokenizer.vocab_size, tokenizer.owned_tokens, names, sentinels, order)


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_t5_s_own_sentinels_are_used_in_its_order(order):
    """``<extra_id_0>`` is the last id of its vocabulary; ``<bos>``, which T5 lacks, is appended."""
    special = numbered(t5_files(), sentinels=3, order=order)
    assert special.ids == {
        **{"<pad>": 0, "<bos>": 26, "<eos>": 1},
        **{"<sentinel-0>": 25, "<sentinel-1>": 24, "<sentinel-2>": 23},
    }
    assert special.vocab_size == 27


def test_more_sentinels_than_t5_owns_are_appended():
    descending, ascending = (numbered(t5_files(), sentinels=12, order=order) for order in ("descending", "ascending"))
    assert descending.sentinels.tolist() == [*range(25, 15, -1), 28, 27]
    assert ascending.sentinels.tolist() == [*range(25, 15, -1), 27, 28]
    assert descending.vocab_size == ascending.vocab_size == 29


def test_sentinels_are_owned_up_to_the_first_gap():
    owned = {"<extra_id_0>": 9, "<extra_id_1>": 8, "<extra_id_3>": 6}
    assert SpecialTokens.append(10, owned, sentinels=4).sentinels.tolist() == [9, 8, 13, 14]
    assert SpecialTokens.append(10, {"<sentinel_0>": 5, "<sentinel_1>": 6}, sentinels=2).sentinels.tolist() == [5, 6]
    exported = SpecialTokens.append(10, {"<sentinel-0>": 7, "<extra_id_0>": 9}, sentinels=1)
    assert exported.sentinels.tolist() == [7]  # a model of ours comes back with its own names


def test_pegasus_s_own_masks_are_used_by_role():
    special = numbered(pegasus_files(), [SENTENCE_MASK, MASK])
    assert special.ids == {"<pad>": 0, "<bos>": 22, "<eos>": 1, "<sent-mask>": 2, "<mask>": 3}
    undeclared = {name: number for name, number in tokenizer_of(pegasus_files()).owned_tokens.items() if name != MASK}
    assert SpecialTokens.append(22, {**undeclared, "<mask_2>": 3}, [MASK])[MASK] == 3


def test_bart_s_own_mask_is_used_and_its_sentence_mask_appended():
    """BART-LS appended ``<sent_mask>`` to BART's vocabulary too."""
    special = numbered(bart_files(), [SENTENCE_MASK, MASK])
    assert special.ids == {"<pad>": 1, "<bos>": 0, "<eos>": 2, "<sent-mask>": 18, "<mask>": 17}


def test_sentinels_are_not_to_be_written():
    special = SpecialTokens.append(10, {}, sentinels=2)
    with pytest.raises(ValueError, match="read-only"):
        special.sentinels[0] = 1


def test_merged_tables_keep_the_first_ones_ids_and_the_tokenizers():
    one = SpecialTokens.append(100, {"<pad>": 0, "<eos>": 2}, [MASK], sentinels=2, order="descending")
    other = SpecialTokens.append(100, {"<pad>": 0, "<eos>": 2, "<unk>": 0}, ["<unk>", DOCUMENT_SEPARATOR], sentinels=4)
    merged = SpecialTokens.merge([one, other], 100)
    assert dict(merged.ids) == {
        **one.ids, "<unk>": 0, "<doc-sep>": 104, "<sentinel-2>": 105, "<sentinel-3>": 106,
    }  # fmt: skip
    assert merged.vocab_size == 107
    assert SpecialTokens.merge([merged, one, other], 100) == merged
    assert SpecialTokens.merge([one], 100) == one
    assert merged.sentinels.tolist() == [103, 102, 105, 106]


def test_tables_of_two_tokenizers_are_not_merged():
    one, other = (SpecialTokens.append(100, {"<eos>": number}) for number in (1, 2))
    with pytest.raises(FarspanError, match=r"<eos> has id 1 for one objective, the tokenizer's 2 for another"):
        SpecialTokens.merge([one, other], 100)
