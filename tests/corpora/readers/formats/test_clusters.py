"""Clusters of related documents: lists of texts, cluster names, NewSHead and Multi-News."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.selection import check_fields
from corpora.storage import files
from tests.corpora.readers import read_all, reasons
from tests.corpora.readers.test_streams import InMemory

NEWSHEAD = ReadOptions(format="newshead")
MULTI_NEWS = ReadOptions(format="multi-news")


def jsonl(rows) -> InMemory:
    return InMemory(b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def test_a_list_of_texts_is_a_cluster():
    rows = [{"text": ["One.", "Two."]}, {"text": "Alone."}, {"text": ["Only one."]}]
    block = read_all("a.jsonl", files=jsonl(rows))
    second = len(json.dumps(rows[0])) + 1
    third = second + len(json.dumps(rows[1])) + 1
    assert block.texts == ["One.", "Two.", "Alone.", "Only one."]
    assert block.keys == ["0.0", "0.1", str(second), f"{third}.0"]
    assert block.clusters == ["0", "0", None, str(third)]


def test_bad_documents_of_a_cluster_are_rejected_one_by_one():
    rows = [{"text": ["One.", "", None, 7, " ", "half \ud83d", ["x"], "Two."]}, {"text": []}]
    block = read_all("a.jsonl", files=jsonl(rows))
    assert dict(zip(block.keys, block.texts, strict=True)) == {"0.0": "One.", "0.7": "Two."}
    second = str(len(json.dumps(rows[0])) + 1)
    assert reasons(block) == [
        ("0.1", "empty_text"),
        ("0.2", "null_text"),
        ("0.3", "not_a_string"),
        ("0.4", "empty_text"),
        ("0.5", "invalid_utf8"),
        ("0.6", "not_a_string"),
        (second, "empty_cluster"),
    ]
    assert [reject.raw for reject in block.rejects[1:3]] == [b"None", b"7"]
    assert block.read == 9


def test_ids_of_the_users_own():
    rows = [{"text": ["One.", "", "Two."], "key": "k"}, {"text": "Three.", "key": 3}, {"text": ["x", "y"]}]
    block = read_all("a.jsonl", ReadOptions(id_field="key"), files=jsonl(rows))
    assert block.ids == ["k.0", "k.2", "3"]
    assert [reason for _, reason in reasons(block)] == ["empty_text", "missing_id"]


def test_a_field_names_the_cluster():
    rows = [
        {"text": "One.", "topic": "a"},
        {"text": "Two.", "topic": 7},
        {"text": "Three.", "topic": "a"},
        {"text": ["Four.", "Five."], "topic": "b"},
        {"text": "Six.", "topic": None},
        {"text": "Seven."},
        {"text": "x", "topic": ["a"]},
        {"text": "x", "topic": True},
        {"text": "x", "topic": ""},
    ]
    block = read_all("a.jsonl", ReadOptions(cluster_field="topic"), files=jsonl(rows))
    assert block.clusters == ["a", "7", "a", "b", "b", None, None]
    assert [reason for _, reason in reasons(block)] == ["missing_cluster"] * 3


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_lists_and_cluster_names_in_tables(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    table = pa.table({"docs": [["One.", "Two."], None, [], ["Three.", None]], "topic": ["a", "b", "c", "d"]})
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    options = ReadOptions(text_field="docs", cluster_field="topic")
    check_fields(str(path), files, options)
    block = read_all(path, options)
    assert list(zip(block.keys, block.texts, block.clusters, strict=True)) == [
        ("0.0", "One.", "a"),
        ("0.1", "Two.", "a"),
        ("3.0", "Three.", "d"),
    ]
    assert reasons(block) == [("1", "null_text"), ("2", "empty_cluster"), ("3.1", "null_text")]
    with pytest.raises(FarspanError, match=r"no field 'theme' .*give --cluster-field NAME"):
        check_fields(str(path), files, ReadOptions(text_field="docs", cluster_field="theme"))


CLUSTERS = [
    {
        "label": f"Story {n}",
        "articles": [
            {"title": f"Title {n} {i}", "text": f"Article {i} on story {n}.\nMore.", "url": "http://example.com"}
            for i in range(3)
        ],
    }
    for n in range(5)
]
ARTICLES = [article["text"] for cluster in CLUSTERS for article in cluster["articles"]]
SHAPES = {
    "objects": CLUSTERS,
    "documents": [{"documents": cluster["articles"]} for cluster in CLUSTERS],
    "lists": [cluster["articles"] for cluster in CLUSTERS],
    "texts": [[article["text"] for article in cluster["articles"]] for cluster in CLUSTERS],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["pt", "old.pt", "json", "indented.json", "jsonl", "jsonl.gz"])
def test_newshead(tmp_path, shape, kind):
    clusters = SHAPES[shape]
    path = tmp_path / f"train_0.{kind}"
    if path.suffix == ".pt":
        torch.save(clusters, path, _use_new_zipfile_serialization=kind == "pt")
    elif "jsonl" in kind:
        data = "\n".join(json.dumps(cluster) for cluster in clusters).encode()
        path.write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    else:
        path.write_text(json.dumps(clusters, indent=1 if "indented" in kind else None))
    check_fields(str(path), files, NEWSHEAD)
    block = read_all(path, NEWSHEAD, 500)
    assert (block.texts, block.rejects) == (ARTICLES, [])
    assert [key.partition(".") for key in block.keys] == [
        (cluster, ".", str(place % 3)) for place, cluster in enumerate(block.clusters)
    ]
    assert [block.clusters[place * 3 : place * 3 + 3] for place in range(5)] == [
        [cluster] * 3 for cluster in dict.fromkeys(block.clusters)
    ]
    if path.suffix == ".pt":
        assert block.clusters[::3] == ["0", "1", "2", "3", "4"]


BAD_CLUSTERS = [
    {"articles": [{"text": "Good."}, {"title": "no text"}, {"text": ""}, 7, "A string."]},
    {"articles": []},
    {"articles": "text"},
    {"text": "no cluster"},
    7,
    {"articles": [{"text": "Alone."}]},
]


@pytest.mark.parametrize("kind", ["pt", "json", "jsonl"])
def test_bad_clusters_cost_themselves(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    if kind == "pt":
        torch.save(BAD_CLUSTERS, path)
    elif kind == "json":
        path.write_text(json.dumps(BAD_CLUSTERS))
    else:
        path.write_text("\n".join(map(json.dumps, BAD_CLUSTERS)))
    block = read_all(path, NEWSHEAD)
    assert block.texts == ["Good.", "A string.", "Alone."]
    assert [reason for _, reason in reasons(block)] == [
        "null_text",
        "empty_text",
        "not_a_string",
        "empty_cluster",
        "not_a_cluster",
        "not_a_cluster",
        "not_a_cluster",
    ]


class Evil:
    def __reduce__(self):
        return os.system, ("touch executed",)


def test_nothing_in_a_file_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save([Evil()], "new.pt")
    torch.save([Evil()], "old.pt", _use_new_zipfile_serialization=False)
    with open("plain.pt", "wb") as file:
        pickle.dump([Evil()], file, protocol=2)
    with open("newer.pt", "wb") as file:
        pickle.dump([Evil()], file, protocol=4)  # of which torch warns
    for name in ("new.pt", "old.pt", "plain.pt", "newer.pt"):
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            block = read_all(tmp_path / name, NEWSHEAD)
        assert shown == []
        assert reasons(block) == [("0", "unreadable_file")]
        assert "only lists, dicts, strings and numbers are loaded" in block.rejects[0].detail
    assert not os.path.exists("executed")


def test_pt_files_that_hold_something_else(tmp_path):
    path = tmp_path / "a.pt"
    torch.save({"weight": torch.zeros(3)}, path)
    block = read_all(path, NEWSHEAD)
    assert [(r.reason, "where a list of clusters is expected" in r.detail) for r in block.rejects] == [
        ("unreadable_file", True)
    ]
    torch.save(CLUSTERS, path)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-1], b"", b"not a file of torch", whole[:10]):
        path.write_bytes(content)
        block = read_all(path, NEWSHEAD)
        assert block.texts == []
        assert len(block.rejects) == 1


def test_multi_news_lines(tmp_path):
    path = tmp_path / "train.src"
    lines = [
        "First story. NEWLINE_CHAR NEWLINE_CHAR Its second paragraph. ||||| Second story. |||||",
        "Third. story_separator_special_tag Fourth.NEWLINE_CHAR End.",
        "Alone in its cluster.",
        "Before ||||| ||||| after an empty one",
        "|||||",
        "",
    ]
    path.write_text("\n".join(lines))
    block = read_all(path, MULTI_NEWS, 50)
    starts = [str(sum(len(line) + 1 for line in lines[:n])) for n in range(5)]
    assert block.texts == [
        "First story.\n\nIts second paragraph.",
        "Second story.",
        "Third.",
        "Fourth.\nEnd.",
        "Alone in its cluster.",
        "Before",
        "after an empty one",
    ]
    assert block.clusters == [starts[0]] * 2 + [starts[1]] * 2 + [starts[2]] + [starts[3]] * 2
    assert block.keys[-2:] == [f"{starts[3]}.0", f"{starts[3]}.2"]
    assert reasons(block) == [(f"{starts[3]}.1", "empty_text"), (f"{starts[4]}.0", "empty_text")]


@pytest.mark.parametrize("kind", ["jsonl", "json.gz", "parquet"])
@pytest.mark.parametrize("ending", ["", " |||||"])
def test_multi_news_records_lose_no_document(tmp_path, kind, ending):
    path = tmp_path / f"train.{kind}"
    rows = [{"document": f"One {n}. ||||| Two. ||||| Three.{ending}", "summary": "– What happened."} for n in range(4)]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        data = "\n".join(map(json.dumps, rows)).encode()
        path.write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    check_fields(str(path), files, MULTI_NEWS)
    block = read_all(path, MULTI_NEWS)
    assert (block.texts, block.rejects) == (
        [text for n in range(4) for text in (f"One {n}.", "Two.", "Three.")],
        [],
    )
    assert len(set(block.clusters)) == 4
    with pytest.raises(FarspanError, match="no field 'body'"):
        check_fields(str(path), files, ReadOptions(format="multi-news", text_field="body"))
