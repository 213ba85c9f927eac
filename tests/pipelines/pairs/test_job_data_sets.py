"""Published data sets from their files to pairs: a book read once, pages beside questions, articles of a cluster."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest

from corpora.readers import ReadOptions
from corpora.storage.manifest_file import read_manifest
from pipelines.documents.inputs import Input
from pipelines.documents.job import plan as plan_documents
from pipelines.documents.options import Documents
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.pairs.job import plan
from pipelines.pairs.options import Pairs
from tests.artefacts import all_rows
from tests.pipelines.documents.jobs import rejects


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


@pytest.mark.slow
def test_ranges_do_not_matter(made, tmp_path):
    inputs, documents, pairs = made
    again = str(tmp_path / "again")
    make_pairs(inputs, documents, again, task_bytes=100)
    assert all_rows(again, "farspan.pairs") == all_rows(pairs, "farspan.pairs")
