"""`farspan pairs`: every question comes back once, with all its answers, whatever happens; published data sets."""

import csv
import gzip
import json
import os
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.raw_tasks import text_key
from corpora.schemas.pairs import open_pairs
from corpora.storage.manifest_file import read_manifest
from corpora.tokenizers.load import load_tokenizer
from pipelines.cards.card import summary
from pipelines.documents.inputs import Input
from pipelines.documents.job import plan as plan_documents
from pipelines.documents.options import Documents
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.pairs.job import plan
from pipelines.pairs.options import Pairs
from tests.artefacts import all_rows, digests
from tests.corpora.readers.tasks import write_lines
from tests.killing import run_killed
from tests.pipelines.documents.jobs import build as build_documents
from tests.pipelines.documents.jobs import rejects
from tests.pipelines.integration.test_every_job import flip
from tests.pipelines.pairs.raw import build, pairs_job


def records_of(folder: str) -> dict[str, list[dict]]:
    """Pair id -> the records with it, in the order of the files."""
    found: dict[str, list[dict]] = defaultdict(list)
    for path in sorted(Path(folder).rglob("*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            found[record["id"]].append({**record, "split": path.stem, "task": path.parent.name})
    return found


def test_a_document_that_many_questions_repeat_is_tokenised_once(scrolls, documents):
    records = [record for own in records_of(scrolls).values() for record in own]
    texts = dict.fromkeys(r["input"].split("\n\n", 0 if r["task"] == "gov_report" else 1)[-1] for r in records)
    found = all_rows(documents)
    decode = load_tokenizer(os.path.join(documents, "tokenizer")).decode
    assert {row["document_id"]: decode(row["tokens"]) for row in found} == {f"scrolls:{text_key(t)}": t for t in texts}
    assert len(found) == len(texts) == 36
    count = read_manifest(documents).counts["scrolls"]
    assert (count["read"], count["written"], count["filtered"], count["rejected"]) == (90, 36, 54, 0)
    assert "54 of 90 documents left out (repeated or too short)" in summary(read_manifest(documents))


def test_each_question_is_one_row_with_all_its_answers(scrolls, documents, pairs):
    records = records_of(scrolls)
    tokenizer = load_tokenizer(os.path.join(pairs, "tokenizer"))
    rows, ids = all_rows(pairs, "farspan.pairs"), [row["document_id"] for row in all_rows(documents)]
    assert [row["pair_id"] for row in rows] == list(records)
    for row in rows:
        own = records[row["pair_id"]]
        query, text = ("", own[0]["input"]) if own[0]["task"] == "gov_report" else own[0]["input"].split("\n\n", 1)
        assert tokenizer.decode(row["query"]) == query
        assert row["document_ids"] == [f"scrolls:{text_key(text)}"]
        assert [ids[number] for number in row["document_rows"]] == row["document_ids"]
        assert row["references"] == [record["output"] for record in own if record["output"]]
        assert [tokenizer.decode(target) for target in row["targets"]] == row["references"]
        assert row["split"] == own[0]["split"]
        assert row["options"] is None
        assert json.loads(row["attributes"]) == {"subset": own[0]["task"]}
    totals = read_manifest(pairs).totals
    assert (totals["pairs"], totals["targets"], totals["documents"]) == (72, 60, 36)
    assert [totals[split] for split in ("train", "validation", "test")] == [24, 24, 24]
    assert totals["documents_in_several_splits"] == 0
    assert "18 of 90 records are further answers of a pair" in summary(read_manifest(pairs))


def test_what_training_reads_is_there(pairs):
    stored = open_pairs(pairs)
    rows = stored.rows_of("train")
    batch = stored.take(rows)
    assert len(batch.document_tokens) == 12
    assert stored.target_counts[rows].sum() == batch.target_offsets[-1] == 30


def test_how_files_are_cut_changes_no_row(scrolls, documents, pairs, tmp_path):
    assert len(digests(pairs)) > 3
    build(scrolls, documents, str(tmp_path / "one"))
    assert all_rows(tmp_path / "one", "farspan.pairs") == all_rows(pairs, "farspan.pairs")


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["index", "read", "group", "pairs"])
def test_a_killed_job_resumes_with_the_same_bytes(scrolls, documents, pairs, tmp_path, stage):
    output = str(tmp_path / "pairs")
    run_killed("tests.pipelines.pairs.raw", "pairs_job_of_reference", stage, scrolls, documents, output)
    build(scrolls, documents, output, task_bytes=4_000, workers=2)
    assert digests(output) == digests(pairs)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"id": "again", "input": "One?\n\nA text."}, "duplicate_id"),
    ({"id": "mute", "output": None}, "no_reference"),
    ({"id": "blank", "output": " "}, "no_reference"),
    ({"id": "hollow", "input": "Who?\n\n "}, "empty_document"),
    ({"id": "stranger", "input": "Who?\n\nA text that no one has tokenised."}, "no_such_document"),
    ({"id": 3}, "not_a_string"),
]


def test_bad_records_go_to_the_dead_letters_and_the_others_are_kept(tokenizer, tmp_path):
    good = {"id": "good", "pid": "x", "input": "Who?\n\nA text.", "output": "No one."}
    write_lines(tmp_path / "qasper" / "train.jsonl", [good])
    build_documents(str(tmp_path / "qasper"), tmp_path / "documents", tokenizer, read=ReadOptions(format="scrolls"))
    records = [good, {**good, "id": "again"}, *({**good, **changed} for changed, _ in BAD)]
    write_lines(tmp_path / "qasper" / "train.jsonl", records)
    write_lines(tmp_path / "qasper" / "rest.jsonl", [good])
    output = str(tmp_path / "pairs")
    said = r"7 of 9 records were rejected .*; the first no_reference is qasper:train.jsonl:\d+: pair 'mute' has"
    with pytest.raises(FarspanError, match=said):
        build(str(tmp_path / "qasper"), str(tmp_path / "documents"), output)
    build(str(tmp_path / "qasper"), str(tmp_path / "documents"), output, error_budget=1.0)
    assert [row["pair_id"] for row in all_rows(output, "farspan.pairs")] == ["good", "again"]
    assert sorted(one["reason"] for one in rejects(output)) == sorted(["unknown_split", *(reason for _, reason in BAD)])
    places = {(one["source"], one["path"]) for one in rejects(output) if one["reason"] != "unknown_split"}
    assert places == {("qasper", "train.jsonl")}
    details = {one["reason"]: one["detail"] for one in rejects(output)}
    assert "'stranger'" not in details["no_such_document"]
    assert str(tmp_path / "documents") in details["no_such_document"]
    assert "'again'" in details["duplicate_id"]


def test_a_cut_file_of_pairs_counts_as_lost(tokenizer, tmp_path):
    def pair(number):
        return {"document": "A text.", "query": f"Which is number {number}?", "answer": str(number), "split": "train"}

    for number in range(9):
        write_lines(tmp_path / "raw" / f"{number}.jsonl", [pair(number)])
    packed = gzip.compress(b"".join(json.dumps(pair(number)).encode() + b"\n" for number in range(9, 999)))
    (tmp_path / "raw" / "cut.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    raw, documents, output = (str(tmp_path / name) for name in ("raw", "documents", "pairs"))
    build_documents(raw, documents, tokenizer, read=ReadOptions(format="pairs"), error_budget=1.0)
    with pytest.raises(FarspanError, match=rf"{len(packed) // 2:,} of [\d,]+ bytes lie in damaged places"):
        build(raw, documents, output, {"format": "pairs"}, error_budget=0.15)  # one file of ten is less


def test_equal_queries_with_other_options_are_not_one_pair(tokenizer, tmp_path):
    question = {"document": "A text.", "query": "Which is true?"}
    answers = (["this", "that"], "this"), (["this", "that"], "that"), (["one", "two"], "two")
    records = [{**question, "options": options, "answer": answer} for options, answer in answers]
    raw, documents, output = (str(tmp_path / name) for name in ("raw", "documents", "pairs"))
    write_lines(tmp_path / "raw" / "train.jsonl", records)
    build_documents(raw, documents, tokenizer, read=ReadOptions(format="pairs"))
    build(raw, documents, output, {"format": "pairs"}, error_budget=1.0)
    (row,) = all_rows(output, "farspan.pairs")
    assert (row["references"], len(row["options"])) == (["this", "that"], 2)
    (reject,) = rejects(output)
    assert reject["reason"] == "duplicate_id"
    assert "other options" in reject["detail"]


def test_what_cannot_work_is_refused_before_work_starts(scrolls, documents, tmp_path):
    output = str(tmp_path / "pairs")
    with pytest.raises(FarspanError, match=r"no documents of source 'scrols' \(did you mean 'scrolls'\?\)"):
        pairs_job(f"scrols={scrolls}", documents, output)
    with pytest.raises(FarspanError, match="no farspan artefact"):
        pairs_job(scrolls, scrolls, output)
    assert not os.path.exists(output)


def test_a_flipped_bit_in_the_documents_stops_the_job(scrolls, documents, tmp_path):
    folder = shutil.copytree(documents, tmp_path / "documents")
    path = sorted((folder / "shards").iterdir())[0]
    flip(str(path))
    with pytest.raises(FarspanError, match=rf"{path}: not a readable shard \(sha256 \w+ where the manifest says \w+\)"):
        build(scrolls, str(folder), str(tmp_path / "pairs"))
    assert not (tmp_path / "pairs" / "manifest.json").exists()


def write_stories(folder, books=5, questions=30):
    """NarrativeQA: a story is missing, and the questions of all stories alternate in their table."""
    (folder / "tmp").mkdir(parents=True)
    names = [f"b{number}" for number in range(books)]
    with (folder / "documents.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["document_id", "set", "kind", "wiki_title"])
        for number, name in enumerate(names):
            table.writerow([name, ("train", "valid", "test")[number % 3], "gutenberg", f"Tale {name}"])
            if number:
                story = f"<pre>*** START OF THIS PROJECT GUTENBERG EBOOK X ***\n{name} was quick and brown.</pre>"
                (folder / "tmp" / f"{name}.content").write_text(story)
    with (folder / "qaps.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["document_id", "set", "question", "answer1", "answer2"])
        for number in range(books * questions):
            table.writerow([names[number % books], "-", f"Who jumps over dog {number}?", "The fox", f"Fox {number}"])


def write_trivia(folder):
    """TriviaQA: two questions share a page, and one names a page that is missing."""
    (folder / "qa").mkdir(parents=True)
    (folder / "evidence" / "wikipedia").mkdir(parents=True)
    for name in ("Fox", "Dog"):
        (folder / "evidence" / "wikipedia" / f"{name}.txt").write_text(f"{name} jumps over lazy dogs.")
    data = [
        {
            "QuestionId": f"q{number}",
            "Question": f"Who is number {number}?",
            "Answer": {"Value": "the fox", "Aliases": ["fox"]},
            "EntityPages": [{"Filename": f"{name}.txt", "Title": name} for name in names],
        }
        for number, names in enumerate([["Fox", "Dog"], ["Gone", "Fox"], ["Gone"]])
    ]
    (folder / "qa" / "wikipedia-dev.json").write_text(json.dumps({"Data": data}))


def write_news(folder):
    """Multi-News: clusters of two articles, of which one has an empty article."""
    folder.mkdir()
    clusters = [f"Fox {number}.|||||Dog {number} is lazy.|||||" for number in range(20)]
    (folder / "val.src").write_text("\n".join([*clusters, "Alone.||||| |||||Together."]) + "\n")
    (folder / "val.tgt").write_text("".join(f"– Summary {number}.\n" for number in range(21)))


WRITERS = {"narrative-qa": write_stories, "trivia-qa": write_trivia, "multi-news": write_news}


@pytest.fixture(scope="module")
def made(tokenizer, tmp_path_factory):
    """Inputs, documents and pairs of all three."""
    folder = tmp_path_factory.mktemp("data_sets")
    inputs = []
    for name, write in WRITERS.items():
        write(folder / name)
        inputs.append(Input.parse(f"{name}={folder / name}", ReadOptions(format=name)))
    documents, pairs = str(folder / "documents"), str(folder / "pairs")
    options = {"inputs": tuple(inputs), "tokenizer": tokenizer, "error_budget": 0.5}
    run_job(plan_documents(Documents(output=documents, **options)), Engine(workers=1))
    make_pairs(inputs, documents, pairs)
    return inputs, documents, pairs


def make_pairs(inputs, documents, output, **options):
    read = [replace(item, read=replace(item.read, format=f"pairs:{item.read.format}")) for item in inputs]
    job = Pairs(inputs=tuple(read), documents=documents, output=output, error_budget=0.5, **options)
    run_job(plan(job), Engine(workers=1))


def of(rows, name):
    return [row for row in rows if row["document_ids"][0].startswith(f"{name}:")]


@pytest.mark.parametrize(
    ("name", "documents", "pairs", "lengths", "splits"),
    [
        ("narrative-qa", 4, 120, {1}, {"train", "validation", "test"}),
        ("trivia-qa", 2, 2, {1, 2}, {"validation"}),
        ("multi-news", 42, 21, {2}, {"validation"}),
    ],
)
def test_pairs_name_their_documents(made, name, documents, pairs, lengths, splits):
    ids = [row["document_id"] for row in all_rows(made[1])]
    rows = of(all_rows(made[2], "farspan.pairs"), name)
    assert len(set(ids)) == len(ids)
    assert sum(key.startswith(f"{name}:") for key in ids) == documents
    assert len(rows) == pairs
    assert all([ids[place] for place in row["document_rows"]] == row["document_ids"] for row in rows)
    assert {len(row["document_ids"]) for row in rows} == lengths
    assert {row["split"] for row in rows} == splits


def test_what_is_missing_is_a_dead_letter(made):
    assert sorted(row["reason"] for row in rejects(made[2])) == ["missing_file"] * 3
    counts = read_manifest(made[1]).counts
    assert {name: counts[name]["rejected"] for name in WRITERS} == dict.fromkeys(WRITERS, 1)


def test_answers_are_references_of_one_row(made):
    rows = all_rows(made[2], "farspan.pairs")
    first = {name: of(rows, name)[0] for name in WRITERS}
    assert first["narrative-qa"]["references"] == ["The fox", "Fox 1"]
    assert first["trivia-qa"]["references"] == ["the fox", "fox"]
    assert first["multi-news"]["references"] == ["– Summary 0."]
    assert [len(first[name]["targets"]) for name in WRITERS] == [2, 1, 1]
