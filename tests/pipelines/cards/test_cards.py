"""Folders of artefacts open in the tools that people use: Hugging Face datasets, polars, DuckDB, pandas."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset
import pytest

from corpora.storage.manifest_file import read_manifest
from pipelines.cards.write import write_card
from pipelines.cli import main
from tests.artefacts import all_rows, make_corpus, make_documents, make_pairs


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents, a corpus, masks by the command, and pairs; all with cards."""
    folder = tmp_path_factory.mktemp("artefacts")
    documents = make_documents(str(folder / "documents"))
    make_documents(str(folder / "titled"), shards=2, titles=("One", None))
    make_corpus(str(folder / "corpus"))
    make_pairs(str(folder / "pairs"), documents)
    for name in ("documents", "titled", "corpus", "pairs"):
        write_card(str(folder / name), read_manifest(str(folder / name)))
    main(["mask", "span", "--preset", "t5", "--corpus", str(folder / "corpus"), "--output", str(folder / "masks")])
    return folder


@pytest.mark.parametrize("name", ["documents", "titled", "corpus", "masks", "pairs"])
def test_datasets_opens_every_row_by_the_card(name: str, artefacts: Path, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    import datasets

    datasets.disable_progress_bars()
    expected = all_rows(artefacts / name, read_manifest(str(artefacts / name)).format)
    loaded = datasets.load_dataset(str(artefacts / name), split="train", cache_dir=str(tmp_path))
    assert loaded.to_list() == expected
    streamed = datasets.load_dataset(str(artefacts / name), split="train", cache_dir=str(tmp_path), streaming=True)
    assert list(streamed) == expected


def test_polars_scans_shards(artefacts: Path):
    found = pl.scan_ipc(artefacts / "corpus" / "shards" / "*.arrow").select(pl.col("tokens").list.len().sum())
    assert found.collect().item() == read_manifest(str(artefacts / "corpus")).totals["tokens"]


def test_duckdb_queries_shards(artefacts: Path):
    documents = pyarrow.dataset.dataset(artefacts / "documents" / "shards", format="ipc")
    with duckdb.connect() as connection:
        connection.register("documents", documents)
        found = connection.sql("select count(*), sum(len(tokens)) from documents where not held_out").fetchall()
    totals = read_manifest(str(artefacts / "documents")).totals
    kept = [totals[name] - totals[f"held_out_{name}"] for name in ("documents", "tokens")]
    assert found == [tuple(kept)]


def test_pandas_reads_a_shard(artefacts: Path):
    (path, *_) = sorted((artefacts / "pairs" / "shards").iterdir())
    frame = pd.read_feather(path)
    rows = all_rows(artefacts / "pairs", "farspan.pairs")[: len(frame)]
    assert frame["pair_id"].tolist() == [row["pair_id"] for row in rows]
    assert frame["query"].map(list).tolist() == [row["query"] for row in rows]
