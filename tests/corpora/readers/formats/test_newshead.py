"""NewSHead: clusters of articles as JSON and in files of torch, of which nothing is executed."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import warnings

import pytest
import torch

from corpora.readers import ReadOptions
from corpora.readers.selection import check_fields
from corpora.storage import files
from tests.corpora.readers import read_all, reasons

NEWSHEAD = ReadOptions(format="newshead")
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
