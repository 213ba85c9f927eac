"""Formats of related documents, and damaged files of every format."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import warnings
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.selection import check_fields
from corpora.storage import files
from tests.corpora.readers import InMemory, read_all, reasons
from tests.corpora.readers.formats.test_opensubtitles import FILMS, RAW
from tests.corpora.readers.test_archives import tar
from tests.corpora.readers.test_json import LAYOUTS

# NewSHead: clusters of articles as JSON and in files of torch, of which nothing is executed.
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


# Multi-News: clusters of articles in source lines and in records.
MULTI_NEWS = ReadOptions(format="multi-news")


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
    assert (block.texts, block.rejects) == ([text for n in range(4) for text in (f"One {n}.", "Two.", "Three.")], [])
    assert len(set(block.clusters)) == 4
    with pytest.raises(FarspanError, match="no field 'body'"):
        check_fields(str(path), files, ReadOptions(format="multi-news", text_field="body"))


# Files with random damage: every record is read or rejected, and nothing is raised.
def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in FILMS.items():
            archive.writestr(name, text)
    return file.getvalue()


def saved(new: bool) -> bytes:
    file = io.BytesIO()
    torch.save(CLUSTERS, file, _use_new_zipfile_serialization=new)
    return file.getvalue()


BOOKS = tar({name.replace(".xml", ".txt"): text for name, text in FILMS.items()})
FILES = {
    "books.tar": ("books3", BOOKS),
    "books.tar.gz": ("books3", gzip.compress(BOOKS, 0)),
    "en.zip": ("opensubtitles", zipped()),
    "1.xml": ("opensubtitles", RAW.encode()),
    "dialogue.json": ("mediasum", LAYOUTS["compact"].encode()),
    "clusters.json": ("newshead", json.dumps(CLUSTERS).encode()),
    "clusters.pt": ("newshead", saved(True)),
    "old.pt": ("newshead", saved(False)),
}


def damaged(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(changed))
        piece, gone = draw.choice(
            [(draw.randbytes(1), 1), (b"", draw.randint(1, 600)), (draw.randbytes(30), 0), (bytes(8), 8)]
        )
        changed[place : place + gone] = piece
        changed = changed or bytearray(b"x")
    return bytes(changed)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FILES)
def test_damage_raises_nothing_and_leaves_a_trace(name):
    format, data = FILES[name]
    options = ReadOptions(format=format)
    whole = read_all(name, options, files=InMemory(data))
    assert len(whole.texts) > 0
    assert not whole.rejects
    for seed in range(150):
        draw = random.Random(seed)
        block = read_all(name, options, draw.choice([1, 500, 1 << 30]), InMemory(damaged(data, draw)))
        if format == "books3":  # in other formats a piece may vanish and leave a sound file
            assert block.rejects or len(block.texts) == len(whole.texts)
