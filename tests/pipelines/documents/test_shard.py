"""Shards of documents and rejects, blocks of texts, unique ids, and tokenizers trained on text."""

import json
import os
import random
from collections import Counter

import pyarrow as pa
import pytest

from corpora.readers import ReadOptions, Reject
from corpora.schemas.documents import documents_schema
from corpora.storage import files
from corpora.storage.shards import map_shard
from corpora.tokenizers.load import load_tokenizer
from corpora.verify.artefact import verify
from pipelines.documents.shard import DocumentsShard, RejectsShard
from tests.artefacts import all_rows, digests
from tests.corpora.tokenizers.test_special_pieces import JSON
from tests.pipelines.documents.jobs import build, rejects


# Writers of documents and rejects: counts, files that appear whole or not at all.
def batch(names: list[str], held_out: list[bool]) -> pa.RecordBatch:
    schema = documents_schema(300)
    columns = {
        "document_id": names,
        "source": [name.partition(":")[0] for name in names],
        "cluster": [None] * len(names),
        "held_out": held_out,
        "tokens": [list(range(1, number + 2)) for number in range(len(names))],
        "sentence_starts": [[0]] * len(names),
    }
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def test_documents_are_counted_by_source(tmp_path):
    path = str(tmp_path / "shard.arrow")
    with DocumentsShard.create(path, 300, None, keep_ids=True) as shard:
        shard.write(batch(["a:1", "b:1", "a:2"], [False, True, True]))
        shard.write(batch(["b:2"], [False]))
    assert shard.counts["a"] == {"written": 2, "tokens": 4, "held_out_tokens": 3}
    assert shard.counts["b"] == {"written": 2, "tokens": 3, "held_out_tokens": 2}
    assert (shard.totals["documents"], shard.totals["tokens"], shard.totals["max_tokens"]) == (4, 7, 3)
    assert shard.ids == ["a:1", "b:1", "a:2", "b:2"]
    assert [(info.rows, info.tokens, info.bytes) for info in shard.info] == [(4, 7, os.path.getsize(path))]


def test_a_shard_that_fails_leaves_no_file(tmp_path):
    path = tmp_path / "shard.arrow"
    with pytest.raises(ZeroDivisionError), DocumentsShard.create(str(path), 300, None) as shard:
        shard.write(batch(["a:1"], [False]))
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def rejected(path: str) -> list[dict]:
    reader = map_shard(path)[1]
    return pa.Table.from_batches([reader.get_batch(i) for i in range(reader.num_record_batches)]).to_pylist()


def test_rejects_are_written_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(RejectsShard, "ROWS", 2)
    path = str(tmp_path / "rejects" / "one.arrow")
    letters = [Reject("", str(number), "too_long" if number else "broken_json", b"x", "why") for number in range(5)]
    with RejectsShard.create(str(tmp_path), "one") as rejects:
        rejects.write("a", "file", letters)
    found = rejected(path)
    assert [row["record"] for row in found] == ["0", "1", "2", "3", "4"]
    assert found[0] == {
        "source": "a", "path": "file", "record": "0", "reason": "broken_json", "detail": "why", "raw": b"x"
    }  # fmt: skip
    assert rejects.reasons == {"too_long": 4, "broken_json": 1}
    assert map_shard(path)[1].num_record_batches == 3


def test_no_reject_no_file(tmp_path):
    with RejectsShard.create(str(tmp_path), "one") as rejects:
        rejects.write("a", "file", [])
    with pytest.raises(ZeroDivisionError), RejectsShard.create(str(tmp_path), "one") as rejects:
        rejects.write("a", "file", [Reject("", "0", "too_long", b"", "")])
        raise ZeroDivisionError
    assert files.walk(str(tmp_path)) == []


# Texts that do not become documents.
def test_a_text_that_a_tokenizer_takes_for_special_tokens_is_a_dead_letter(tmp_path):
    """Only one that spells the name under which an encoder hides a piece: a noncharacter, and the token."""
    (tmp_path / "tokenizer.json").write_bytes(JSON["whole words"])
    lines = [{"text": text} for text in ("ab <mask> text|>", "\U0010ffff<mask> ab", "<mask>")]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    output = str(tmp_path / "documents")
    manifest = build(f"made={tmp_path / 'a.jsonl'}", output, str(tmp_path / "tokenizer.json"), error_budget=1.0)
    assert manifest.rejects == {"special_token": 1}
    assert manifest.counts["made"]["written"] == 2
    assert [(row["record"], row["raw"].decode()) for row in rejects(output)] == [("a.jsonl:29", "\U0010ffff<mask> ab")]
    assert verify(output) == []


# Repeated ids of the user's own: the first record in input order stays, the others are rejected.
def test_the_first_of_equal_ids_stays(tokenizer, tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    ids = [random.Random(1).randint(0, 60) for _ in range(300)]
    for name, part in (("a", ids[:150]), ("b", ids[150:])):
        lines = [json.dumps({"text": f"Text {name} {place}.", "key": f"k{key}"}) for place, key in enumerate(part)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    options = {"read": ReadOptions(id_field="key"), "error_budget": 1.0}
    manifests = [
        build(str(folder), tmp_path / str(size), tokenizer, task_bytes=size, **options) for size in (2_000, 700)
    ]
    few, many = (tmp_path / str(size) for size in (2_000, 700))
    assert len(digests(few)) < len(digests(many))
    assert all_rows(few) == all_rows(many)
    reader = load_tokenizer(tokenizer)
    found = {row["document_id"]: reader.decode(row["tokens"]) for row in all_rows(few)}
    expected = {}
    for place, key in enumerate(ids):
        name = "ab"[place >= 150]
        expected.setdefault(f"raw:k{key}", f"Text {name} {place % 150}.")
    assert found == expected
    assert manifests[0].rejects == {"duplicate_id": 300 - len(expected)}
    assert Counter(row["reason"] for row in rejects(few)) == manifests[0].rejects
    assert manifests[0].counts["raw"]["read"] == 300
    assert verify(str(few)) == []


# ``farspan tokenizer train``: raw text is read as for documents, and nothing is left out silently.
def lines(path, *records):
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in records))
    return path


def test_bad_records_are_counted(tmp_path, run):
    path = lines(tmp_path / "raw.jsonl", {"text": 3}, "{bad", {"text": "hello hello hello"})
    status, printed, _ = run("tokenizer", "train", "--input", path, "--vocab-size", 260, "--output", tmp_path / "made")
    assert status == 0
    assert printed.strip().endswith("; 2 bad records left out: broken_json 1, not_a_string 1")


def test_a_vocabulary_that_the_text_does_not_fill_is_said(tmp_path, run):
    path = lines(tmp_path / "raw.jsonl", {"text": "hello hello hello"})
    flags = ("--vocab-size", 8000, "--output", tmp_path / "made", "--log-format", "json")
    status, printed, _ = run("tokenizer", "train", "--input", path, *flags)
    assert status == 0
    assert json.loads(printed)["message"].endswith("; fewer than 8,000, as the text has no more")


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"body": "some text", "n": 1}], "no field 'text' in {path}; its fields: body, n; give --text-field body"),
        ([{"text": None}], "--input {path}: no text to train a tokenizer on; 1 bad record left out: null_text 1"),
        ([], "--input {path}: no text to train a tokenizer on"),
    ],
)
def test_inputs_without_text_are_named(tmp_path, run, records, message):
    path = lines(tmp_path / "raw.jsonl", *records)
    status, _, errors = run("tokenizer", "train", "--input", path, "--output", tmp_path / "made")
    assert (status, message.format(path=path) in errors) == (1, True), errors
    assert not (tmp_path / "made").exists()
