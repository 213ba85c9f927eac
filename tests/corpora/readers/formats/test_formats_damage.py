"""Files with random damage: every record is read or rejected, and nothing is raised."""

from __future__ import annotations

import gzip
import io
import json
import random
import zipfile

import pytest
import torch

from corpora.readers import ReadOptions
from tests.corpora.readers import InMemory, read_all
from tests.corpora.readers.formats.test_mediasum import LAYOUTS
from tests.corpora.readers.formats.test_newshead import CLUSTERS
from tests.corpora.readers.formats.test_opensubtitles import FILMS, RAW
from tests.corpora.readers.test_archives import tar


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
