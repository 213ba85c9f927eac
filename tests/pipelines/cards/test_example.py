"""The first row in words: shortened values, decoded ids, hidden text in brackets."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from pipelines.cards.example import first_row, row_example
from tests.artefacts import small_tokenizer


def masks(*spans: tuple[int, int, int]) -> dict:
    starts, lengths, flags = zip(*spans, strict=True)
    return {"span_starts": list(starts), "span_lengths": list(lengths), "span_flags": list(flags)}


def test_long_values_are_cut_and_counted():
    found = row_example({"name": "x" * 1000, "ids": list(range(20)), "score": 0.123456789, "key": b"\x01\xff"},
                        small_tokenizer())  # fmt: skip
    assert found.splitlines() == [
        f"name: {'x' * 600} ...",
        "ids: [0, 1, 2, 3, 4, 5, 6, 7, ... (20 in all)]",
        "score: 0.1235",
        "key: 01ff",
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


def test_the_first_row_of_a_shard(tmp_path):
    schema = pa.schema([("a", pa.int64())])
    for name, rows in (("empty", []), ("full", [3, 4])):
        with pa.ipc.new_file(str(tmp_path / name), schema) as writer:
            if rows:
                writer.write_batch(pa.record_batch([pa.array(rows)], schema=schema))
    assert first_row(pa.ipc.open_file(str(tmp_path / "empty"))) is None
    assert first_row(pa.ipc.open_file(str(tmp_path / "full"))) == {"a": 3}
