"""Tables with random damage: rows are read or rejected, and nothing is raised."""

from __future__ import annotations

import io
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpora.readers import ReadOptions, isolation
from tests.corpora.readers import InMemory, read_all
from tests.corpora.readers.formats.test_formats_damage import damaged
from tests.corpora.readers.test_isolation import arrow, table


def parquet(**options):
    sink = io.BytesIO()
    pq.write_table(table().drop_columns("views"), sink, row_group_size=60, **options)
    return sink.getvalue()


SOUND = {
    "file.arrow": lambda: arrow(pa.ipc.new_file),
    "packed.arrow": lambda: arrow(pa.ipc.new_file, "zstd"),
    "stream.arrow": lambda: arrow(pa.ipc.new_stream),
    "plain.parquet": lambda: parquet(use_dictionary=False, compression="none"),
    "words.parquet": parquet,
}


def fuzz(name, seeds):
    """Read damaged copies of a file; rows that are neither read nor rejected would raise."""
    data = SOUND[name]()
    rejected = read = 0
    for seed in seeds:
        draw = random.Random(seed)
        changed = bytearray(data)
        if seed % 2:
            changed = bytearray(damaged(data, draw))
        else:  # few bits, which leave the file's structure alone more often
            for _ in range(draw.randint(1, 5)):
                changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        field = draw.choice(["text", "words", "lists", "large", "views", "number"])
        block = read_all(name, ReadOptions(text_field=field), draw.choice([1, 3000, 1 << 30]), InMemory(bytes(changed)))
        json.dumps([block.texts, block.keys])
        rejected += bool(block.rejects)
        read += bool(block.texts)
    return read, rejected


@pytest.mark.parametrize("name", SOUND)
def test_damaged_tables_raise_nothing(name):
    _, rejected = fuzz(name, range(12))
    assert rejected > 3


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SOUND if name.endswith("arrow")])
def test_nine_hundred_damaged_arrow_files_raise_nothing(name):
    """Of 900 files 625 have dead letters (457 of them end at the damage), 275 read as if sound; no process crashes."""
    started = isolation._idle[-1:]
    read, rejected = fuzz(name, range(1000, 1300))
    assert not started or isolation._idle[-1:] == started
    assert read > 100
    assert rejected > 100
