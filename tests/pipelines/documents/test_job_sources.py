"""Several sources in one artefact, each read in its own way, and the clusters that they name."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import replace

import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.tokenizers.load import load_tokenizer
from corpora.verify.artefact import verify
from pipelines.documents.inputs import Input
from pipelines.documents.job import plan
from pipelines.documents.options import Documents
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from tests.artefacts import all_rows


@pytest.fixture
def mixture(tmp_path):
    """Sources of four formats, one of them with ids of its own, and how each is read."""
    folder = tmp_path / "mixture"
    books = {
        f"books/{n}.epub.txt": f"*** START OF THE PROJECT GUTENBERG EBOOK {n} ***\n" + "A b c. " * n for n in range(9)
    }
    (folder / "books").mkdir(parents=True)
    with tarfile.open(folder / "books" / "books3.tar.gz", "w:gz") as archive:
        for name, text in books.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    (folder / "talks").mkdir()
    talks = [{"id": f"NPR-{n % 8}", "utt": ["Hello.", "And you?"], "speaker": ["A", "B"]} for n in range(10)]
    (folder / "talks" / "news_dialogue.json").write_text(json.dumps([*talks, {"id": "NPR-9"}]))
    (folder / "news").mkdir()
    news = [{"document": f"First of {n}. ||||| Second of {n}, with more words. ||||| |||||"} for n in range(5)]
    (folder / "news" / "multi.jsonl").write_text("\n".join(map(json.dumps, news)))
    (folder / "topics").mkdir()
    topics = [{"body": f"Text {n}.", "topic": n % 2 or None} for n in range(6)]
    (folder / "topics" / "a.jsonl").write_text("\n".join(map(json.dumps, topics)))
    reads = {
        "books": ReadOptions(format="books3", preprocess=("strip-gutenberg",), min_characters=30),
        "talks": ReadOptions(format="mediasum", id_field="id"),
        "news": ReadOptions(format="multi-news", min_tokens=15),
        "topics": ReadOptions(text_field="body", cluster_field="topic"),
    }
    return tuple(Input.parse(f"{name}={folder / name}", read) for name, read in reads.items())


def test_sources_of_several_formats_in_one_artefact(mixture, tokenizer, tmp_path):
    output = str(tmp_path / "documents")
    options = Documents(inputs=mixture, output=output, tokenizer=tokenizer, error_budget=1.0, task_bytes=300)
    manifest = run_job(plan(options), Engine(workers=1))
    counts = manifest.counts
    assert {name: (c["read"], c["written"], c["filtered"], c["rejected"]) for name, c in counts.items()} == {
        "books": (9, 4, 5, 0),
        "talks": (11, 8, 0, 3),
        "news": (15, 5, 5, 5),
        "topics": (6, 6, 0, 0),
    }
    assert manifest.rejects == {"duplicate_id": 2, "empty_text": 5, "missing_text": 1}
    assert verify(output) == []
    found = all_rows(output)
    for source, count in counts.items():
        assert count["tokens"] == sum(len(row["tokens"]) for row in found if row["source"] == source)
    assert sum(count["tokens"] for count in counts.values()) == manifest.totals["tokens"]
    texts = {row["document_id"]: load_tokenizer(tokenizer).decode(row["tokens"]) for row in found}
    assert texts["books:books3.tar.gz:books/8.epub.txt"].startswith("A b c. A b c.")
    assert texts["talks:NPR-1"] == "A: Hello.\nB: And you?"
    assert texts["news:multi.jsonl:0.1"] == "Second of 0, with more words."
    config = manifest.config["read"]
    assert (config["news"]["min_tokens"], config["books"]["preprocess"]) == (15, ["strip-gutenberg"])


def test_clusters_have_numbers_that_survive_a_move_and_another_cut(mixture, tokenizer, tmp_path):
    _, _, news, topics = mixture
    news = replace(news, read=replace(news.read, min_tokens=0))
    both = (news, topics)
    for name, size in (("once", 1 << 20), ("cut", 50)):
        run_job(
            plan(
                Documents(
                    inputs=both, output=str(tmp_path / name), tokenizer=tokenizer, error_budget=1.0, task_bytes=size
                )
            ),
            Engine(workers=1),
        )
    found = all_rows(tmp_path / "once")
    assert all_rows(tmp_path / "cut") == found
    members: dict[int | None, list[str]] = {}
    for row in found:
        members.setdefault(row["cluster"], []).append(row["document_id"].rpartition(":")[2])
    alone = members.pop(None)
    assert len(alone) == 3
    assert all(0 <= number < 1 << 63 for number in members)
    stems = [{name.partition(".")[0] for name in names} for names in members.values() if "." in names[0]]
    assert [len(stem) for stem in stems] == [1] * 5
    assert sorted(len(names) for names in members.values()) == [2] * 5 + [3]
    # blake2b, 16 bytes, keyed with blake2b("[0,"cluster",{}]"), over the cluster's name; upper 63 of the first 64 bits
    key = hashlib.blake2b(b'[0,"cluster",{}]', digest_size=16).digest()
    digest = hashlib.blake2b(b"topics:1", digest_size=16, key=key).digest()
    assert int.from_bytes(digest[:8], "little") >> 1 in members


def test_one_source_is_read_in_one_way(raw, tokenizer, tmp_path):
    one = Input.parse(f"c4={raw}/a.jsonl")
    other = Input.parse(f"c4={raw}/b.jsonl", ReadOptions(min_tokens=3))
    with pytest.raises(FarspanError, match="source 'c4' has two different read options"):
        plan(Documents(inputs=(one, other), output=str(tmp_path / "documents"), tokenizer=tokenizer))


def _written(rows, path) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("own_ids", [False, True])
def test_titles_are_a_column_beside_the_same_rows(own_ids, tokenizer, tmp_path):
    """Without the option neither column nor key of the manifest appears; a source without titles has nulls."""
    tales = [{"text": f"Tale {n}.", "title": [f"Of  {n}", None, " "][n % 3], "id": n % 8} for n in range(10)]
    raw = {"tales": _written(tales, tmp_path / "tales.jsonl"), "notes": _written(tales, tmp_path / "notes.jsonl")}
    ids = ReadOptions(id_field="id" if own_ids else None)
    reads = {"plain": {"tales": ids}, "titled": {"tales": replace(ids, title_field="title")}}
    manifests = {}
    for name, read in reads.items():
        inputs = tuple(Input.parse(f"{source}={path}", read.get(source, ids)) for source, path in raw.items())
        options = Documents(
            inputs=inputs, output=str(tmp_path / name), tokenizer=tokenizer, error_budget=1, task_bytes=100
        )
        manifests[name] = run_job(plan(options), Engine(workers=1))
        assert verify(str(tmp_path / name)) == []
    plain, titled = (all_rows(tmp_path / name) for name in reads)
    assert [{**row, "title": kept["title"]} for row, kept in zip(plain, titled, strict=True)] == titled
    assert list(plain[0]) == ["document_id", "source", "cluster", "held_out", "tokens", "sentence_starts"]
    of_tales = [row["title"] for row in titled if row["source"] == "tales"]
    assert of_tales == [f"Of {n}" if n % 3 == 0 else None for n in range(8 if own_ids else 10)]
    assert {row["title"] for row in titled if row["source"] == "notes"} == {None}
    assert "title_field" not in json.dumps(manifests["plain"].config)
    expected = json.loads(json.dumps(manifests["plain"].config))
    expected["read"]["tales"]["title_field"] = "title"
    assert manifests["titled"].config == expected
    assert manifests["plain"].totals == manifests["titled"].totals
