"""Options for reading raw files."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from corpora.errors import FarspanError
from corpora.readers.options import PairFields, ReadOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "csv"}, "--format csv: unknown; give one of arrow, books3"),
        ({"max_record_bytes": 0}, "--max-record-bytes 0"),
        ({"text_field": ""}, "--text-field"),
        ({"id_field": ""}, "--id-field"),
        ({"cluster_field": ""}, "--cluster-field"),
        ({"title_field": ""}, "--title-field"),
        ({"min_characters": -1}, "--min-characters -1"),
        ({"min_tokens": -1}, "--min-tokens -1"),
        ({"preprocess": ("join-lines", "shout")}, "--preprocess shout: unknown; give names among strip-gutenberg"),
        ({"separator": "==="}, "--separator '===': .* for --format stories only"),
        ({"format": "stories", "separator": " "}, "--separator ' '"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(FarspanError, match=message):
        ReadOptions(**options)


def test_options_survive_json():
    options = ReadOptions(format="pairs", preprocess=("join-lines",), id_field="key", pairs=PairFields(query_field="q"))
    again = ReadOptions(**json.loads(json.dumps(asdict(options))))
    assert again == options
    assert again.named_fields == [("--id-field", "key")]
