"""A finished corpus: any row at any time, one by one or gathered into a padded batch."""

from __future__ import annotations

import os
import pickle
from dataclasses import asdict, replace

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus, DocumentUse
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import read_manifest, write_manifest
from corpora.verify.artefact import verify
from tests.artefacts import make_corpus


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


def manifest(**config) -> Manifest:
    return Manifest("farspan.corpus", config, 0, 64, {})


def test_a_statement_is_read_back():
    use = DocumentUse(truncated=True, overlap=3, max_uses=None, one_shard=False, left_out="too long")
    assert DocumentUse.of(manifest(builder="fifth", document_use=asdict(use))) == use


def test_a_corpus_has_to_state_it():
    with pytest.raises(FarspanError, match=r"config\.document_use, .* builder 'random' uses documents, is missing"):
        DocumentUse.of(manifest(builder="random"))


@pytest.mark.parametrize("stated", [5, {}, {**asdict(DocumentUse()), "overlap": -1}, {**asdict(DocumentUse()), "x": 1}])
def test_malformed_statements_are_refused(stated):
    with pytest.raises(FarspanError, match=r"config\.document_use"):
        DocumentUse.of(manifest(builder="random", document_use=stated))


def restate(folder: str, builder: str, use: DocumentUse | None, filtered: int = 0) -> None:
    old = read_manifest(folder)
    stated = {} if use is None else {"document_use": asdict(use)}
    config = {name: value for name, value in old.config.items() if name != "document_use"}
    config |= {"builder": builder, **stated}
    counts = {
        name: {**count, "filtered": filtered, "read": count["written"] + filtered} for name, count in old.counts.items()
    }
    write_manifest(folder, replace(old, config=config, counts=counts))


def test_verification_goes_by_the_statement(tmp_path):
    folder = make_corpus(str(tmp_path / "corpus"))
    restate(folder, "fifth", DocumentUse())
    assert verify(folder) == []
    restate(folder, "fifth", DocumentUse(max_uses=0))
    assert "a document is used 1 times, max_uses is 0" in verify(folder)
    restate(folder, "fifth", DocumentUse(one_shard=False), filtered=2)
    assert verify(folder) == ["manifest.json: 2 documents are left out, though document_use.left_out is null"]
    restate(folder, "fifth", DocumentUse(left_out="too short"))
    assert verify(folder) == []


def test_verification_without_a_statement_names_the_manifest(tmp_path):
    folder = make_corpus(str(tmp_path / "corpus"))
    restate(folder, "fifth", None)
    with pytest.raises(FarspanError, match=rf"{os.path.join(folder, 'manifest.json')}: config\.document_use, the"):
        verify(folder)
