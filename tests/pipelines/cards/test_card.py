"""The text of cards: valid YAML, hostile names and texts stay text, nothing of the machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from corpora.schemas.documents import documents_schema
from corpora.schemas.pairs import pairs_schema
from corpora.schemas.predictions import predictions_schema
from corpora.schemas.sequences import corpus_schema
from corpora.schemas.vectors import clusters_schema, neighbours_schema, vectors_schema
from corpora.storage.manifest_file import read_manifest
from objectives.api.masks import MASK_SCHEMA
from pipelines.cards.card import COLUMNS, ROWS, card, size_category
from tests.artefacts import make_documents


@pytest.fixture
def manifest(tmp_path):
    return read_manifest(make_documents(str(tmp_path / "documents")))


def head(text: str) -> dict:
    return yaml.safe_load(text.split("---\n")[1])


def test_the_head_is_that_of_a_data_set_card(manifest):
    found = head(card(manifest))
    assert (found["license"], found["language"]) == ("unknown", ["unknown"])
    assert found["configs"] == [
        {"config_name": "default", "data_files": [{"split": "train", "path": "shards/*.arrow"}]}
    ]
    told = replace(manifest, config={**manifest.config, "license": "cc0-1.0", "language": ["no", "de"]})
    assert head(card(told))["language"] == ["no", "de"]  # not the YAML word for false
    assert head(card(told))["license"] == "cc0-1.0"


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        (0, "n<1K"),
        (999, "n<1K"),
        (1000, "1K<n<10K"),
        (123_456, "100K<n<1M"),
        (10**9, "1B<n<10B"),
        (10**13, "n>1T"),
    ],
)
def test_sizes_have_the_hubs_names(rows: int, name: str):
    assert size_category(rows) == name


def test_numbers_and_checksums_are_those_of_the_manifest(manifest):
    text = card(manifest, [("ab" * 32, None)], sha256="cd" * 32)
    assert f"| tokens | {manifest.totals['tokens']:,} |" in text
    assert "ab" * 32 in text
    assert "cd" * 32 in text
    assert manifest.tokenizer["fingerprint"] in text


def test_titles_are_a_column_only_of_documents_with_titles(manifest):
    titled = replace(manifest, config={**manifest.config, "read": {"made": {"title_field": "name"}}})
    assert "| `title` |" in card(titled)
    assert "--title-field name" in card(titled)
    assert "title" not in card(manifest)


def test_texts_and_names_cannot_leave_their_place(manifest):
    count = next(iter(manifest.counts.values()))
    hostile = replace(manifest, counts={"a|<script>\n# b": count})
    text = card(hostile, example="```\n# no heading\n````")
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "\n# b" not in text
    assert "`````text\n```\n# no heading\n````\n`````" in text


def test_equal_artefacts_have_equal_cards_wherever_they_lie(manifest, tmp_path):
    other = read_manifest(make_documents(str(tmp_path / "elsewhere")))
    assert card(manifest) == card(other)
    assert str(tmp_path) not in card(manifest)


SCHEMAS = {
    "farspan.documents": documents_schema(300, titles=True),
    "farspan.corpus": corpus_schema(300),
    "farspan.masks": MASK_SCHEMA,
    "farspan.vectors": vectors_schema(8),
    "farspan.clusters": clusters_schema(8),
    "farspan.neighbours": neighbours_schema(),
    "farspan.pairs": pairs_schema(300),
    "farspan.predictions": predictions_schema(300),
}


@pytest.mark.parametrize("format", SCHEMAS)
def test_every_column_has_a_meaning(format: str):
    assert set(COLUMNS[format]) == set(SCHEMAS[format].names)
    assert ROWS[format]
