"""A finished corpus: any row at any time, one by one or gathered into a padded batch."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus


def test_any_row_at_any_time(corpus):
    reader = Corpus(corpus)
    rows = np.random.default_rng(0).permutation(len(reader))
    batch = reader.take(rows)
    straight = reader.take(np.arange(len(reader)))
    for place, row in enumerate(rows):
        assert np.array_equal(batch.tokens[place], straight.tokens[row])
        assert np.array_equal(batch.tokens[place], reader.tokens(row))
        assert batch.sequence_id(place) == straight.sequence_id(row)
        assert batch.document_ids[place] == straight.document_ids[row]


def test_a_row_is_a_view_of_the_file(corpus):
    assert not Corpus(corpus).tokens(3).flags.owndata


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint16])
def test_gathering_pads_and_cuts(corpus, dtype):
    reader = Corpus(corpus)
    rows = np.array([5, 0, 5, len(reader) - 1])
    out = np.full((4, 60), 9, dtype)
    lengths = reader.gather_tokens(rows, out)
    for place, row in enumerate(rows):
        expected = reader.tokens(row)[:60]
        assert lengths[place] == len(expected)
        assert np.array_equal(out[place, : lengths[place]], expected)
        assert (out[place, lengths[place] :] == 9).all()
    assert np.array_equal(reader.gather_tokens(rows, out, pad=7), lengths)
    for place, length in enumerate(lengths):
        assert np.array_equal(out[place, :length], reader.tokens(rows[place])[:length])
        assert (out[place, length:] == 7).all()


def test_rows_outside_are_refused(corpus):
    reader = Corpus(corpus)
    with pytest.raises(IndexError, match=str(len(reader))):
        reader.take(np.array([len(reader)]))
    with pytest.raises(IndexError):
        reader.gather_tokens(np.array([-1]), np.zeros((1, 5), np.int64))


@pytest.mark.parametrize(("dtype", "pad"), [(np.int8, 0), (np.uint16, -1), (np.int32, 2**31)])
def test_ids_and_padding_are_never_cut_to_a_smaller_type(corpus, dtype, pad):
    with pytest.raises(FarspanError, match=f"{np.dtype(dtype)} cannot hold ids .* and pad {pad}"):
        Corpus(corpus).gather_tokens(np.arange(2), np.zeros((2, 5), dtype), pad)


def test_a_reader_can_go_to_another_process(corpus):
    there = pickle.loads(pickle.dumps(Corpus(corpus)))
    assert np.array_equal(there.tokens(1), Corpus(corpus).tokens(1))
