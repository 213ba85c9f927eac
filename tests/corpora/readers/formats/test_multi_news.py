"""Multi-News: clusters of articles in source lines and in records."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.selection import check_fields
from corpora.storage import files
from tests.corpora.readers import read_all, reasons

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
    assert (block.texts, block.rejects) == (
        [text for n in range(4) for text in (f"One {n}.", "Two.", "Three.")],
        [],
    )
    assert len(set(block.clusters)) == 4
    with pytest.raises(FarspanError, match="no field 'body'"):
        check_fields(str(path), files, ReadOptions(format="multi-news", text_field="body"))
