"""Formats of related documents, OpenSubtitles, and damaged files of every format."""

import gzip
import io
import json
import os
import pickle
import random
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.formats import opensubtitles
from corpora.readers.selection import check_fields, plan_ranges
from tests.corpora.readers import damaged, pack, read_all, reasons, stored, tar, write, zipped
from tests.corpora.readers.test_json import LAYOUTS

OPUS = ReadOptions(format="opensubtitles")
META = """  <meta>
    <conversion><sentences>2</sentences><tokens>9</tokens></conversion>
    <source><year>1999</year><genre>Drama</genre></source>
  </meta>
"""
TOKENISED = f"""<?xml version="1.0" encoding="utf-8"?>
<document id="133093">
{META}  <s id="1">
    <time id="T1S" value="00:00:32,100" />
    <w id="1.1">Is</w>
    <w id="1.2">everything</w>
    <w id="1.3">in</w><w id="1.4">place</w>
    <w id="1.5">?</w>
    <time id="T1E" value="00:00:34,000" />
  </s>
  <s id="2"><w id="2.1" alternative="d">R&amp;D</w>
    <w id="2.2">caf&#233;</w>
  </s>
  <s id="3"> <time id="T3S" value="00:00:40,000" /> </s>
</document>
"""
RAW = f"""<?xml version="1.0" encoding="utf-8"?>
<document id="133093">
  <s id="1">
    <time id="T1S" value="00:00:32,100" />
Is everything
in place?
    <time id="T1E" value="00:00:34,000" />
  </s>
  <s id="2">- R&amp;D caf\u00e9 \u4e16</s>
{META}</document>
"""


@pytest.mark.parametrize(
    ("xml", "text"),
    [
        (TOKENISED, "Is everything in place ?\nR&D caf\u00e9"),
        (RAW, "Is everything in place?\n- R&D caf\u00e9 \u4e16"),
        (RAW.replace("utf-8", "utf-16"), "Is everything in place?\n- R&D caf\u00e9 \u4e16"),
    ],
)
def test_a_film_is_a_line_for_each_sentence(tmp_path, xml, text):
    for name in ("4.xml", "4.xml.gz"):
        block = read_all(write(tmp_path / name, xml.encode("utf-16" if "utf-16" in xml else "utf-8")), OPUS)
        assert (block.texts, block.keys, block.rejects) == ([text], ["0"], [])


def film(number):
    return f'<document id="{number}"><s id="1">Film {number}.</s><s id="2">{"Yes. " * number}</s></document>'


FILMS = {f"OpenSubtitles/raw/en/{1990 + n}/{n * 7}/{n}.xml": film(n) for n in range(1, 12)}


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz", ".tar"])
def test_an_archive_of_films(tmp_path, suffix):
    films = FILMS if suffix == ".zip" else {f"{name}.gz": gzip.compress(text.encode()) for name, text in FILMS.items()}
    path = pack(tmp_path / f"en{suffix}", {"README": "about", "LICENSE": "free", **films})
    for target in (1, 600, 1 << 30):
        block = read_all(path, OPUS, target)
        assert (block.keys, block.rejects) == (list(films), [])
        assert block.texts == [f"Film {n}.\n{('Yes. ' * n).strip()}" for n in range(1, 12)]


LAUGHS = (
    '<!DOCTYPE d [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    + "]><document><s>&i;</s></document>"
)
OUTSIDE = '<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/hostname">]><document><s>&x;</s></document>'
BAD = {
    "laughs": (LAUGHS, "unsafe_xml", "declares the entity 'a'"),
    "outside": (OUTSIDE, "unsafe_xml", "declares the entity 'x'"),
    "parameter": ('<!DOCTYPE d [<!ENTITY % x "y">]><document/>', "unsafe_xml", "declares the entity 'x'"),
    "unknown": ("<document><s>&x;</s></document>", "broken_xml", "undefined entity"),
    "cut": (RAW[: len(RAW) // 2], "broken_xml", "unclosed token|no element found"),
    "no xml": ("Just text.", "broken_xml", "syntax error"),
    "blank": ("", "broken_xml", "no element found"),
    "crossed": ("<document><s>a</document></s>", "broken_xml", "mismatched tag"),
    "encoding": ('<?xml version="1.0" encoding="klingon"?><document/>', "broken_xml", "unknown encoding"),
    "bytes": (b'<?xml version="1.0" encoding="utf-8"?><document><s>caf\xe9</s></document>', "broken_xml", "invalid"),
    "no sentence": ("<document><p>text</p></document>", "empty_text", "blank"),
    "long": (film(5000), "too_long", "more than --max-record-bytes 20,000"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_film_is_a_reject_and_its_neighbours_are_kept(tmp_path, case):
    xml, reason, detail = BAD[case]
    options = ReadOptions(format="opensubtitles", max_record_bytes=20_000)
    block = read_all(pack(tmp_path / "en.zip", {"a.xml": film(1), "b.xml": xml, "c.xml": film(2)}), options)
    assert block.keys == ["a.xml", "c.xml"]
    (reject,) = block.rejects
    assert (reject.key, reject.reason) == ("b.xml", reason)
    assert any(part in reject.detail for part in detail.split("|"))
    assert reasons(read_all(write(tmp_path / "b.xml", xml), options)) == [("0", reason)]


def test_deep_elements_are_no_danger():
    data = b"<a>" * 200_000 + b"<s>text</s>" + b"</a>" * 200_000
    assert read_all("a.xml", OPUS, data=data).texts == ["text"]


def test_a_damaged_film_in_a_sound_archive_costs_itself():
    packed = {f"{name}.gz": gzip.compress(text.encode()) for name, text in FILMS.items()}
    names = list(packed)
    packed[names[3]] = packed[names[3]][:-9]
    packed[names[5]] = b"no gzip"
    block = read_all("en.tar", OPUS, data=tar(packed))
    assert block.keys == [name for place, name in enumerate(names) if place not in (3, 5)]
    assert reasons(block) == [(names[3], "truncated_file"), (names[5], "unreadable_file")]


LINES = [f"Line {n} of some film{' and more of it' * (n % 30)}.".encode() for n in range(2000)]


def test_lines_of_text_come_in_runs_that_no_range_changes():
    data = b"\n".join(LINES) + b"\n"
    assert len(data) > 5 * opensubtitles.RUN_BYTES
    plain = read_all("en.txt", OPUS, data=data)
    assert "\n".join(plain.texts).encode() == b"\n".join(LINES)
    starts = [int(key) for key in plain.keys]
    assert [start // opensubtitles.RUN_BYTES for start in starts] == list(range(len(starts)))
    for target in (1, 100_000):
        assert read_all("en.txt", OPUS, target, data) == plain
        with stored("en.txt", data):
            assert len(plan_ranges("en.txt", OPUS, target)) == len(starts)
    assert read_all("en.txt.gz", OPUS, data=gzip.compress(data)) == plain
    cut = read_all("en.txt.gz", OPUS, data=gzip.compress(data, 0)[: len(data) // 2])
    assert cut.texts == plain.texts[: len(cut.texts)]
    assert reasons(cut) == [(plain.keys[len(cut.texts)], "truncated_file")]


def test_a_bad_line_costs_its_run():
    lines = [*LINES]
    lines[700] = b"caf\xe9"
    data = b"\n".join(lines)
    block = read_all("en.txt", OPUS, data=data)
    ((key, reason),) = reasons(block)
    assert (reason, int(key) // opensubtitles.RUN_BYTES) == ("invalid_utf8", data.index(b"caf\xe9") // (64 << 10))
    assert len(block.texts) == len(data) // (64 << 10)


# NewSHead: clusters of articles as JSON and in files of torch, of which nothing is executed.
NEWSHEAD = ReadOptions(format="newshead")
CLUSTERS: list[dict[str, Any]] = [
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
SHAPES: dict[str, list[Any]] = {
    "objects": CLUSTERS,
    "documents": [{"documents": cluster["articles"]} for cluster in CLUSTERS],
    "lists": [cluster["articles"] for cluster in CLUSTERS],
    "texts": [[article["text"] for article in cluster["articles"]] for cluster in CLUSTERS],
}


def store(clusters: list, path: Path) -> None:
    """Write clusters in the form that the name of the file says."""
    if path.suffix == ".pt":
        torch.save(clusters, path, _use_new_zipfile_serialization="old" not in path.name)
    elif ".jsonl" in path.name:
        write(path, "\n".join(map(json.dumps, clusters)))
    else:
        path.write_text(json.dumps(clusters, indent=1 if "indented" in path.name else None))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["pt", "old.pt", "json", "indented.json", "jsonl", "jsonl.gz"])
def test_newshead(tmp_path, shape, kind):
    path = tmp_path / f"train_0.{kind}"
    store(SHAPES[shape], path)
    check_fields(str(path), NEWSHEAD)
    block = read_all(path, NEWSHEAD, 500)
    assert (block.texts, block.rejects) == (ARTICLES, [])
    assert block.keys == [f"{cluster}.{place % 3}" for place, cluster in enumerate(block.clusters)]
    assert block.clusters == [cluster for cluster in dict.fromkeys(block.clusters) for _ in range(3)]
    assert len(set(block.clusters)) == 5
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
    store(BAD_CLUSTERS, path)
    block = read_all(path, NEWSHEAD)
    assert block.texts == ["Good.", "A string.", "Alone."]
    expected = ["null_text", "empty_text", "not_a_string", "empty_cluster", *["not_a_cluster"] * 3]
    assert [reason for _, reason in reasons(block)] == expected


class Evil:
    def __reduce__(self):
        return os.system, ("touch executed",)


def test_nothing_in_a_file_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save([Evil()], "new.pt")
    torch.save([Evil()], "old.pt", _use_new_zipfile_serialization=False)
    for name, protocol in (("plain.pt", 2), ("newer.pt", 4)):  # torch warns of the second
        Path(name).write_bytes(pickle.dumps([Evil()], protocol=protocol))
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
    (reject,) = block.rejects
    assert (reject.reason, "where a list of clusters is expected" in reject.detail) == ("unreadable_file", True)
    torch.save(CLUSTERS, path)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-1], b"", b"not a file of torch", whole[:10]):
        path.write_bytes(content)
        block = read_all(path, NEWSHEAD)
        assert (block.texts, len(block.rejects)) == ([], 1)


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
        *("First story.\n\nIts second paragraph.", "Second story.", "Third.", "Fourth.\nEnd."),
        *("Alone in its cluster.", "Before", "after an empty one"),
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
        write(path, "\n".join(map(json.dumps, rows)))
    check_fields(str(path), MULTI_NEWS)
    block = read_all(path, MULTI_NEWS)
    assert (block.texts, block.rejects) == ([text for n in range(4) for text in (f"One {n}.", "Two.", "Three.")], [])
    assert len(set(block.clusters)) == 4
    with pytest.raises(FarspanError, match="no field 'body'"):
        check_fields(str(path), ReadOptions(format="multi-news", text_field="body"))


# Files with random damage: every record is read or rejected, and nothing is raised.
def saved(new: bool) -> bytes:
    file = io.BytesIO()
    torch.save(CLUSTERS, file, _use_new_zipfile_serialization=new)
    return file.getvalue()


BOOKS = tar({name.replace(".xml", ".txt"): text for name, text in FILMS.items()})
FILES = {
    "books.tar": ("books3", BOOKS),
    "books.tar.gz": ("books3", gzip.compress(BOOKS, 0)),
    "en.zip": ("opensubtitles", zipped(FILMS)),
    "1.xml": ("opensubtitles", RAW.encode()),
    "dialogue.json": ("mediasum", LAYOUTS["compact"].encode()),
    "clusters.json": ("newshead", json.dumps(CLUSTERS).encode()),
    "clusters.pt": ("newshead", saved(True)),
    "old.pt": ("newshead", saved(False)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FILES)
def test_damage_raises_nothing_and_leaves_a_trace(name):
    format, data = FILES[name]
    options = ReadOptions(format=format)
    whole = read_all(name, options, data=data)
    assert len(whole.texts) > 0
    assert not whole.rejects
    for seed in range(150):
        draw = random.Random(seed)
        block = read_all(name, options, draw.choice([1, 500, 1 << 30]), damaged(data, draw))
        if format == "books3":  # in other formats a piece may vanish and leave a sound file
            assert block.rejects or len(block.texts) == len(whole.texts)
