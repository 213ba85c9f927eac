"""A run whose corpus lies in a store and is fetched shard by shard."""

from __future__ import annotations

import os
from dataclasses import replace
from io import StringIO
from pathlib import Path

import fsspec
import pytest
from rich.console import Console

from corpora.errors import FarspanError
from tests.artefacts import make_corpus
from tests.object_store import upload
from tests.trainer.run.test_startup import recipe_on
from trainer.conversion.sources import read_model
from trainer.data.prefetch import LoadingConfig
from trainer.run.train import train


def run(directory: Path, corpus: str, cache_gib: float | None, shuffle_shards: int = 1) -> str:
    """Train, and return what was said."""
    recipe = recipe_on(directory, corpus, corpus, "start")
    loading = LoadingConfig(cache_gib=cache_gib)
    recipe = replace(recipe, data=replace(recipe.data, shuffle_shards=shuffle_shards), loading=loading)
    said = StringIO()
    assert train(recipe, console=Console(file=said, width=1000)).finished
    return said.getvalue()


def weights(directory: Path) -> dict[str, list[float]]:
    """The trained weights."""
    return {name: value.flatten().tolist() for name, value in read_model(directory).state.items()}


@pytest.mark.slow  # tests/trainer/data/test_shards_ahead.py compares batches
def test_it_learns_what_a_local_run_learns(tmp_path, monkeypatch):
    monkeypatch.setenv("FARSPAN_CACHE", str(tmp_path / "cache"))
    fsspec.filesystem("memory").store.clear()
    corpus = make_corpus(str(tmp_path / "corpus"), documents=60, room_per_document=2, shards=4)
    upload(corpus, "memory://corpus")
    run(tmp_path / "here", corpus, None)
    said = run(tmp_path / "there", "memory://corpus", 0.01)
    assert "is read from a remote store step by step" in said
    assert weights(tmp_path / "there") == weights(tmp_path / "here")
    assert (tmp_path / "there" / "tokenizer" / "tokenizer.json").exists()
    assert os.listdir(tmp_path / "cache") == ["shards"]  # no whole copy
    with pytest.raises(FarspanError, match=r"corpus.data.shuffle_shards: checkpoint 1, now None"):
        run(tmp_path / "here", corpus, None, shuffle_shards=0)
