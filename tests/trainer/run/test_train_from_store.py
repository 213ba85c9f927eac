"""A run whose corpus lies in a store and is fetched shard by shard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from corpora.errors import FarspanError
from tests.artefacts import make_corpus
from tests.object_store import upload
from tests.trainer.run.test_startup import recipe_on
from trainer.conversion.convert import read_model
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


@pytest.mark.slow  # tests/trainer/data/test_remote_shards.py compares batches
def test_it_learns_what_a_local_run_learns(tmp_path, monkeypatch):
    monkeypatch.setenv("FARSPAN_CACHE", str(tmp_path / "cache"))
    corpus = make_corpus(str(tmp_path / "corpus"), documents=60, room_per_document=2, shards=4)
    upload(corpus, "memory://corpus")
    run(tmp_path / "here", corpus, None)
    said = run(tmp_path / "there", "memory://corpus", 0.01)
    assert "is read from a remote store step by step" in said
    assert weights(tmp_path / "there") == weights(tmp_path / "here")
    assert (tmp_path / "there" / "tokenizer" / "tokenizer.json").exists()
    assert os.listdir(tmp_path / "cache") == ["shards"]
    with pytest.raises(FarspanError, match=r"corpus.data.shuffle_shards: checkpoint 1, now None"):
        run(tmp_path / "here", corpus, None, shuffle_shards=0)


@pytest.mark.slow
def test_two_ranks_of_torchrun_share_one_cache_and_learn_what_they_learn_from_local_disk(tmp_path, bucket, store):
    """The store is a real server that both processes ask; each shard is fetched once for the two of them."""
    corpus = make_corpus(str(tmp_path / "corpus"), documents=60, room_per_document=2, shards=4)
    upload(corpus, f"{bucket}/corpus")
    store.requests.clear()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FARSPAN_CACHE": str(tmp_path / "cache"),
                   "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1",
                   "AWS_ENDPOINT_URL": store.url}  # fmt: skip
    found = {}
    for name, place in (("here", corpus), ("there", f"{bucket}/corpus")):
        recipe = tmp_path / f"{name}.toml"
        recipe.write_text(
            f'extends = "tiny"\n[run]\ndirectory = {json.dumps(str(tmp_path / name))}\ndevice = "cpu"\nsteps = 12\n'
            f"[data]\nsource_length = 512\ntarget_length = 256\nshuffle_shards = 1\ncorpus = {json.dumps(place)}\n"
            'objective = { name = "span" }\n[loading]\ncache_gib = 0.01\n'
        )
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command += ["-m", "pipelines", "train", str(recipe)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        found[name] = [record["loss"] for record in map(json.loads, lines) if "loss" in record]
    assert len(found["here"]) == 12
    assert found["there"] == found["here"]
    assert os.listdir(tmp_path / "cache") == ["shards"]
    fetched = [name for name in os.listdir(tmp_path / "cache" / "shards") if not name.startswith(".")]
    assert 0 < len(fetched) == store.asked("GET", "/corpus/shards/")
