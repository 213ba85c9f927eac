"""Sources whose artefacts are in a store get local copies."""

from __future__ import annotations

from corpora.schemas.pairs import PairSet
from tests.artefacts import make_documents, make_pairs
from tests.object_store import upload
from trainer.data.config import SourceConfig, TaskConfig
from trainer.data.local_disk import on_local_disk


def test_remote_pairs_bring_their_documents(bucket, store, tmp_path, monkeypatch):
    monkeypatch.setenv("FARSPAN_CACHE", str(tmp_path / "cache"))
    documents = make_documents(str(tmp_path / "artefacts" / "documents"))
    make_pairs(str(tmp_path / "artefacts" / "pairs"), documents)
    upload(tmp_path / "artefacts", bucket)
    config = SourceConfig(name="pairs", pairs=f"{bucket}/pairs", task=TaskConfig(preset="bart_ls"))
    copied = on_local_disk(config)
    pairs = PairSet(copied.pairs, copied.documents)
    here = PairSet(str(tmp_path / "artefacts" / "pairs"))
    assert pairs.take([5, 2]).document_tokens.values.tolist() == here.take([5, 2]).document_tokens.values.tolist()
    assert PairSet(f"{bucket}/pairs").documents.folder == f"{bucket}/documents"
