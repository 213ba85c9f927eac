"""Damaged files of lines: what is kept was in the sound file, and how a file is cut into ranges shows nowhere."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random

import pytest
import zstandard

from corpora.readers import ReadOptions
from tests.corpora.readers import InMemory, read_all
from tests.corpora.readers.formats.test_formats_damage import damaged

RECORDS = [json.dumps({"text": f"record {number} " + "caf\u00e9 \u4e16" * (number % 9)}) for number in range(120)]
DATA = "\n".join(RECORDS).encode()
SOUND = read_all("a.jsonl", files=InMemory(DATA)).texts
PACKED = {
    "gz": lambda data: gzip.compress(data, 1),
    "bz2": bz2.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "zst": lambda data: zstandard.ZstdCompressor(level=1, write_checksum=True).compress(data),
}


def broken(data, seed):
    draw = random.Random(seed)
    if seed % 2:
        return damaged(data, draw)
    changed = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def fuzz_plain(seeds):
    for seed in seeds:
        files = InMemory(broken(DATA, seed))
        for name, options in (("a.jsonl", ReadOptions()), ("a.txt", ReadOptions(format="lines"))):
            whole = read_all(name, options, files=files)
            assert read_all(name, options, random.Random(seed).randint(1, 3000), files) == whole
            assert whole.damaged == 0  # lines may be bad, but a plain file cannot be known to be damaged
            assert whole.read > 0


def fuzz_packed(kind, seeds):
    """Damaged files of three members each; how many were found out."""
    third = len(DATA) // 3
    packed = b"".join(PACKED[kind](part) for part in (DATA[:third], DATA[third : 2 * third], DATA[2 * third :]))
    found = 0
    for seed in seeds:
        changed = broken(packed, seed)
        block = read_all(f"a.jsonl.{kind}", files=InMemory(changed))
        # a checksum stands behind every member: what is kept is sound, from the beginning and without a gap; but damage
        # by which a member goes on to the end of the file cannot be told from a cut
        if not any(reject.reason == "truncated_file" for reject in block.rejects):
            assert block.texts == SOUND[: len(block.texts)]
        assert len(block.texts) == len(SOUND) or block.rejects
        assert block.lost <= len(changed)
        found += bool(block.damaged)
    return found


def test_plain_lines():
    fuzz_plain(range(40))


@pytest.mark.parametrize("kind", PACKED)
def test_compressed_lines(kind):
    assert fuzz_packed(kind, range(40)) > 30


@pytest.mark.slow
def test_hundreds_of_plain_files():
    fuzz_plain(range(1000, 1300))


@pytest.mark.slow
@pytest.mark.parametrize("kind", PACKED)
def test_hundreds_of_compressed_files(kind):
    assert fuzz_packed(kind, range(1000, 1300)) > 270
