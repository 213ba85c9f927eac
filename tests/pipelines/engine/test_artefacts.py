"""Parents of a job, what its manifest takes from them, and the tokenizer in an artefact."""

from __future__ import annotations

import os

import pytest

from corpora.errors import FarspanError
from corpora.storage.manifest_file import manifest_sha256
from corpora.tokenizers.kinds.byte_level_bpe import train
from pipelines.engine.artefacts import (
    Parent,
    absolute,
    artefact_tokenizer,
    derived_job,
    read_neighbours,
    save_tokenizer,
    tokenizer_folder,
)
from tests.artefacts import make_corpus, make_documents


def test_equal_folders_have_equal_paths():
    assert absolute("attic://bucket/a/") == absolute("attic://bucket/a")


def test_an_artefact_made_again_has_its_new_tokenizer(tmp_path):
    for vocab_size in (270, 280):
        tokenizer = train(["a few words, and a few more words"], vocab_size)
        save_tokenizer(tokenizer, tokenizer_folder(str(tmp_path)))
        assert artefact_tokenizer(str(tmp_path)).fingerprint == tokenizer.fingerprint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_documents(str(tmp_path_factory.mktemp("derived") / "documents"), shards=3)


def declare(output: str, parent: Parent, **options):
    values = {"format": "farspan.corpus", "config": {"builder": "x"}, "seed": 3, "rows_per_batch": 8, "work_bytes": 5}
    return derived_job(output, parent, [], **{**values, **options})


def test_a_parent_knows_its_rows_and_bytes(folder, monkeypatch):
    monkeypatch.chdir(os.path.dirname(folder))
    parent = Parent.read("documents/", "farspan.documents")
    assert parent.folder == os.path.realpath(folder)
    rows = [shard.rows for shard in parent.manifest.shards]
    assert parent.first_rows == (0, rows[0], rows[0] + rows[1], sum(rows))
    assert [shard.rows for shard in parent.shards] == rows
    assert parent.bytes == sum(os.path.getsize(shard.path) for shard in parent.shards)
    assert parent.vocab_size == parent.manifest.tokenizer["vocab_size"]


def test_a_parent_of_another_format_is_refused(folder):
    with pytest.raises(FarspanError, match=r"is 'farspan\.documents' where 'farspan\.corpus' is needed"):
        Parent.read(folder, "farspan.corpus")


def test_a_derived_job_names_its_parent_and_has_its_tokenizer(folder, tmp_path):
    parent = Parent.read(folder, "farspan.documents")
    job = declare(os.path.join(os.path.dirname(folder), "corpus"), parent)
    assert job.head.parent is not None
    assert (job.head.parent, job.origins) == ({"manifest_sha256": manifest_sha256(folder)}, {"parent": "../documents"})
    assert declare("/somewhere/else/corpus", parent).head == job.head
    assert job.head.tokenizer == parent.manifest.tokenizer
    assert (job.head.seed, job.head.rows_per_batch, job.head.special_tokens, job.work_bytes) == (3, 8, {}, 5)
    assert declare("elsewhere", parent, special_tokens={"<mask>": 9}).head.special_tokens == {"<mask>": 9}


def test_the_output_cannot_be_the_parent(folder):
    with pytest.raises(FarspanError, match="is the folder that the job reads"):
        declare(folder, Parent.read(folder, "farspan.documents"))


def test_neighbours_have_to_be_neighbours(folder, tmp_path):
    parent = Parent.read(folder, "farspan.documents")
    with pytest.raises(FarspanError, match=r"'farspan\.neighbours' is needed"):
        read_neighbours(make_corpus(str(tmp_path / "corpus")), parent)
