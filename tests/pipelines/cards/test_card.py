"""Cards: valid YAML, the line that sums up, ancestors, hostile texts; and the tools that open their folders."""

import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.dataset
import pytest
import yaml

from corpora.schemas.corpus import DocumentUse
from corpora.schemas.documents import documents_schema
from corpora.schemas.pairs import pairs_schema
from corpora.schemas.predictions import predictions_schema
from corpora.schemas.sequences import corpus_schema
from corpora.schemas.vectors import clusters_schema, neighbours_schema, vectors_schema
from corpora.storage.manifest import ShardInfo
from corpora.storage.manifest_file import CARD, list_files, manifest_sha256, read_manifest
from corpora.verify.artefact import verify
from objectives.api.masks import MIXTURE_SCHEMA
from pipelines.cards.card import FORMATS, card, shares, size_category, summary
from pipelines.cards.write import find_ancestors, find_example, row_example, write_card
from pipelines.cli import main
from tests.artefacts import all_rows, make_corpus, make_documents, make_pairs, small_tokenizer


@pytest.fixture
def manifest(tmp_path):
    return read_manifest(make_documents(str(tmp_path / "documents")))


def head(text: str) -> dict:
    return yaml.safe_load(text.split("---\n")[1])


def test_the_head_is_that_of_a_data_set_card(manifest):
    found = head(card(manifest))
    assert (found["license"], found["language"]) == ("unknown", ["unknown"])
    files = [{"split": "train", "path": "shards/*.arrow"}]
    assert found["configs"] == [{"config_name": "default", "data_files": files}]
    told = replace(manifest, config={**manifest.config, "license": "cc0-1.0", "language": ["no", "de"]})
    assert head(card(told))["language"] == ["no", "de"]  # not the YAML word for false
    assert head(card(told))["license"] == "cc0-1.0"


@pytest.mark.parametrize(
    ("rows", "name"),
    [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (123_456, "100K<n<1M"), (10**9, "1B<n<10B"), (10**13, "n>1T")],
)
def test_sizes_have_the_hubs_names(rows: int, name: str):
    assert size_category(rows) == name


def test_numbers_and_checksums_are_those_of_the_manifest(manifest):
    text, tokens = card(manifest, [("ab" * 32, None)], sha256="cd" * 32), f"{manifest.totals['tokens']:,}"
    for part in (f"| tokens | {tokens} |", "ab" * 32, "cd" * 32, manifest.tokenizer["fingerprint"]):
        assert part in text


def test_titles_are_a_column_only_of_documents_with_titles(manifest):
    titled = replace(manifest, config={**manifest.config, "read": {"made": {"title_field": "name"}}})
    assert "| `title` |" in card(titled)
    assert "title" not in card(manifest)


def test_texts_and_names_cannot_leave_their_place(manifest):
    hostile = replace(manifest, counts={"a|<script>\n# b": next(iter(manifest.counts.values()))})
    text = card(hostile, example="```\n# no heading\n````")
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "\n# b" not in text
    assert "`````text\n```\n# no heading\n````\n`````" in text


def test_equal_artefacts_have_equal_cards_wherever_they_lie(manifest, tmp_path):
    assert card(manifest) == card(read_manifest(make_documents(str(tmp_path / "elsewhere"))))
    assert str(tmp_path) not in card(manifest)


SCHEMAS = {
    "farspan.documents": documents_schema(300, titles=True),
    "farspan.corpus": corpus_schema(300),
    "farspan.masks": MIXTURE_SCHEMA,
    "farspan.vectors": vectors_schema(8),
    "farspan.clusters": clusters_schema(8),
    "farspan.neighbours": neighbours_schema(),
    "farspan.pairs": pairs_schema(300),
    "farspan.predictions": predictions_schema(300),
}


@pytest.mark.parametrize("format", SCHEMAS)
def test_every_column_has_a_meaning(format: str):
    assert set(FORMATS[format][2]) == set(SCHEMAS[format].names)


def masks(*spans: tuple[int, int, int]) -> dict:
    starts, lengths, flags = zip(*spans, strict=True)
    return {"span_starts": list(starts), "span_lengths": list(lengths), "span_flags": list(flags)}


def test_long_values_are_cut_and_counted():
    row = {"name": "x" * 1000, "ids": list(range(20)), "score": 0.123456789, "key": b"\x01\xff"}
    assert row_example(row, small_tokenizer()).splitlines() == [
        f"name: {'x' * 600} ...",
        "ids: [0, 1, 2, 3, 4, 5, 6, 7, ... (20 in all)]",
        *("score: 0.1235", "key: 01ff"),
    ]


def test_control_characters_and_line_ends_stay_in_their_line():
    assert row_example({"text": "a\x1b[31m\nb"}, small_tokenizer()) == "text: a\\x1b[31m\\nb"


def test_text_that_the_model_is_asked_for_is_in_brackets():
    tokenizer = small_tokenizer()
    tokens = tokenizer.encode(["the quick brown fox jumps over lazy dogs while seven wizards observe"])[0]
    corpus_row = {"tokens": list(tokens)}
    found = row_example(masks((1, 2, 5), (4, 1, 0)), tokenizer, corpus_row).splitlines()[-1]
    assert found.replace("⟦", "").replace("⟧", "") == tokenizer.decode(tokens)
    assert re.findall("⟦(.*?)⟧", found) == [tokenizer.decode(tokens[1:3])]  # a candidate is not hidden


def test_of_a_long_row_the_place_of_the_first_span_is_shown():
    tokenizer = small_tokenizer()
    tokens = np.random.default_rng(0).integers(10, tokenizer.vocab_size, 5000)
    found = row_example(masks((3000, 3, 5), (4900, 3, 5)), tokenizer, {"tokens": tokens.tolist()})
    line = found.split("⟧:\n")[-1]
    assert line.startswith("... ")
    assert line.endswith(" ...")
    assert line.count("⟦") == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Documents under a licence, a random corpus of these and its masks, by the commands."""
    folder = tmp_path_factory.mktemp("artefacts")
    (folder / "text.txt").write_text("The lantern is red. The river is quiet, and nobody sees it.\n" * 20)
    terms = "--license cc0-1.0 --language en"
    for command in (
        "tokenizer train --vocab-size 300 --input {0}/text.txt --output {0}/tokenizer",
        "documents --input {0}/text.txt --format lines --tokenizer {0}/tokenizer --output {0}/documents " + terms,
        "corpus random --documents {0}/documents --sequence-length 64 --output {0}/corpus",
        "mask span --preset t5 --corpus {0}/corpus --output {0}/masks",
    ):
        main(command.format(folder).split())
    return folder


def test_licence_and_ancestry_reach_every_child(folder: Path):
    text = (folder / "masks" / CARD).read_text("utf-8")
    assert 'license: "cc0-1.0"' in text
    assert '- "en"' in text
    for name in ("documents", "corpus", "masks"):
        assert f"`{manifest_sha256(str(folder / name))}`" in text
    assert "⟦" in text
    assert str(folder) not in text


def test_the_card_is_derived_and_no_part_of_the_artefact(folder: Path, tmp_path):
    copy = str(shutil.copytree(folder / "documents", tmp_path / "copy"))
    (tmp_path / "copy" / CARD).write_text("edited")
    assert verify(copy) == []
    assert CARD not in list_files(copy)
    (tmp_path / "copy" / CARD).unlink()
    assert verify(copy) == []
    write_card(copy, read_manifest(copy))
    assert (tmp_path / "copy" / CARD).read_bytes() == (folder / "documents" / CARD).read_bytes()


def test_an_ancestor_out_of_reach_keeps_its_checksum(folder: Path, tmp_path):
    manifest = read_manifest(str(folder / "masks"))
    formats = [one and one.format for _, one in find_ancestors(str(folder / "masks"), manifest)]
    assert formats == ["farspan.corpus", "farspan.documents"]
    alone = str(shutil.copytree(folder / "masks", tmp_path / "masks"))
    assert list(find_ancestors(alone, manifest)) == [(manifest_sha256(str(folder / "corpus")), None)]
    example = find_example(alone, manifest)
    assert example is None or "⟦" not in example


def test_a_parent_that_was_made_again_is_no_ancestor(folder: Path, tmp_path):
    for name in ("corpus", "masks"):
        shutil.copytree(folder / name, tmp_path / name)
    make_corpus(str(tmp_path / "other"))
    shutil.copy(tmp_path / "other" / "manifest.json", tmp_path / "corpus" / "manifest.json")
    ((_, found),) = find_ancestors(str(tmp_path / "masks"), read_manifest(str(tmp_path / "masks")))
    assert found is None


def test_empty_and_damaged_artefacts_have_a_card_without_example(tmp_path):
    made = make_documents(str(tmp_path / "made"))
    for shard in (tmp_path / "made" / "shards").iterdir():
        shard.write_bytes(b"damaged")
    assert find_example(made, read_manifest(made)) is None
    write_card(made, read_manifest(made))
    assert "## Numbers" in (tmp_path / "made" / CARD).read_text("utf-8")


@pytest.mark.parametrize("flag", ["--license=a b", "--language=<en>", "--license="])
def test_terms_that_are_no_names_are_refused(flag: str, run, tmp_path):
    status, _, errors = run("documents", "--input", "x", "--tokenizer", "y", "--output", tmp_path / "o", flag)
    assert (status, "give a name of letters" in errors) == (1, True)


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


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(str(tmp_path_factory.mktemp("summary") / "corpus"))


def test_the_reason_for_left_out_documents_is_the_builders(corpus):
    manifest = read_manifest(corpus)
    counts = {name: {**count, "filtered": 3, "read": 83} for name, count in manifest.counts.items()}
    manifest = replace(manifest, counts=counts)
    assert "3 of 83 documents left out (too short, too long, or in a dropped tail)" in summary(manifest)
    use = asdict(DocumentUse(left_out="written on a Monday"))
    fifth = replace(manifest, config={**manifest.config, "builder": "fifth", "document_use": use})
    assert "3 of 83 documents left out (written on a Monday)" in summary(fifth)


def test_documents_are_left_out_when_too_short(tmp_path):
    manifest = read_manifest(make_documents(str(tmp_path / "documents")))
    assert "left out" not in summary(manifest)
    filtered = replace(manifest, counts={"a": {"read": 9, "filtered": 2}})
    assert "2 of 9 documents left out (too short)" in summary(filtered)


def test_sums_come_first_and_maxima_name_their_unit(corpus):
    totals = {"max_documents": 3, "max_tokens": 1020, "held_out_tokens": 5, "padding": 957, "parts": 1, "tokens": 0}
    words = summary(replace(read_manifest(corpus), totals={**totals, "sequences": 2}))
    sums = "5 held-out tokens, 957 positions of padding, 1 part, 2 sequences"
    assert words.startswith(f"{sums}; at most 3 documents and 1,020 tokens in a sequence; ")


def test_empty_artefacts_and_equal_draws_are_pointed_out(corpus):
    manifest = read_manifest(corpus)
    assert summary(replace(manifest, shards=())).startswith("EMPTY, no row was written")
    shard = ShardInfo("part-00000-of-00002.arrow", 1, 0, 5, "0" * 64)
    totals = {"sequences": 2, "unmasked": 2}
    masks = replace(manifest, format="farspan.masks", config={"draws": 2}, totals=totals, shards=(shard, shard))
    assert "NO row has a target token" in summary(masks)
    assert "all 2 draws are equal" in summary(masks)


def test_shares_of_clusters_and_of_found_neighbours(corpus):
    totals = {"clusters": 4, "documents": 100, "max_documents": 50, "sampled_neighbours": 10}
    totals |= {"sampled_in_cluster": 8, "sampled_found": 6}
    assert shares(replace(read_manifest(corpus), totals=totals)) == {
        "skew": 2.0,
        "recall": 0.6,
        "recall_of_search": 0.75,
        "lost_at_cluster_borders": pytest.approx(0.2),
    }
