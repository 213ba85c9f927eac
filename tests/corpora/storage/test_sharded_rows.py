"""Rows of an artefact whose shards are damaged, missing or another's."""

from __future__ import annotations

import os
import pickle
import shutil

import numpy as np
import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus

SCHEMA = pa.schema([pa.field("tokens", pa.large_list(pa.uint16()))])


def copied(corpus, tmp_path, change) -> tuple[str, str]:
    """A copy of the corpus with the bytes of its second shard changed; the shard too."""
    folder = shutil.copytree(corpus, tmp_path / "copy")
    shard = sorted((folder / "shards").iterdir())[1]
    shard.write_bytes(change(shard.read_bytes()))
    return str(folder), str(shard)


def test_shards_that_are_missing_or_cut_short_are_named_without_reading(corpus, tmp_path):
    Corpus(corpus).check_files()
    folder, shard = copied(corpus, tmp_path, lambda data: data[:-8])
    with pytest.raises(FarspanError, match=rf"{shard}: not a readable shard \([\d,]+ bytes where the manifest says"):
        Corpus(folder).check_files()
    os.remove(shard)
    with pytest.raises(FarspanError, match=rf"{shard}: not a readable shard .*No such file"):
        Corpus(folder).check_files()


def test_checksums_are_compared_when_asked_or_at_the_first_touch(corpus, tmp_path):
    flipped = copied(corpus, tmp_path, lambda data: data[:900] + bytes([data[900] ^ 1]) + data[901:])
    trusting, careful = Corpus(flipped[0]), Corpus(flipped[0], verify=True)
    trusting.check_files()
    trusting.check_shard(0)
    with pytest.raises(FarspanError, match=rf"{flipped[1]}: .*sha256 \w+ where the manifest says"):
        trusting.check_shard(1)
    first, second = np.array([0]), trusting.starts[1:2]
    careful.take(first)
    for reader in (careful, pickle.loads(pickle.dumps(careful))):
        with pytest.raises(FarspanError, match="sha256"):
            reader.take(second)
        with pytest.raises(FarspanError, match="sha256"):
            reader.gather_tokens(second, np.zeros((1, 5), np.int64))


def test_a_shard_with_other_columns_is_named(corpus, tmp_path):
    folder, shard = copied(corpus, tmp_path, lambda data: data.replace(b"document_starts", b"document_ztarts"))
    with pytest.raises(FarspanError, match=rf"{shard}: not a readable shard \(its columns are not those of farspan.c"):
        Corpus(folder).take(np.arange(len(Corpus(folder))))


def test_a_shard_whose_rows_cannot_be_found_is_named(corpus, tmp_path):
    def without_rows(data: bytes) -> bytes:
        return data[:1000] + b"\xff" * 3000 + data[4000:]  # all record batches but not the index of them at the end

    folder, shard = copied(corpus, tmp_path, without_rows)
    with pytest.raises(FarspanError, match=rf"{shard}: not a readable shard"):
        Corpus(folder).take(np.arange(len(Corpus(folder))))
