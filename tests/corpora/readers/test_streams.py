"""Lines of streams: ranges, compression, cuts, damage and bounded memory."""

import bz2
import gzip
import json
import lzma
import os
import random
import tracemalloc
import zlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.readers import ReadOptions
from corpora.readers.selection import plan_ranges, read_records
from corpora.storage import files
from tests.corpora.readers import COMPRESS, damaged, read_all, reasons, stored

# Lines of streams: ranges, compression, cuts and bounded memory.
LINES = ReadOptions(format="lines")


@settings(max_examples=100, deadline=None)
@given(
    data=st.lists(st.sampled_from([b"", b"a", b"bc\r", b"\xc3\xa9\xc3\xa9", b" ", b"0123456789" * 3, b"\xff"])).map(
        b"\n".join
    ),
    target=st.integers(1, 100),
)
def test_ranges_together_give_each_line_once_in_order(data, target):
    block = read_all("a.txt", LINES, target, data)
    offset, good, bad = 0, [], []
    for line in data.split(b"\n"):
        if line.strip():
            (bad if line == b"\xff" else good).append((str(offset), line))
        offset += len(line) + 1
    assert list(zip(block.keys, block.texts, strict=True)) == [(at, row.decode().rstrip("\r")) for at, row in good]
    assert [(reject.key, reject.raw) for reject in block.rejects] == bad
    assert block.read == len(good) + len(bad)


def records(count):
    return b"".join(json.dumps({"text": f"record {i} " + "abc" * (i % 50)}).encode() + b"\n" for i in range(count))


def two_parts(compress, data):
    return compress(data[: len(data) // 2]) + compress(data[len(data) // 2 :])


KINDS = ("gz", "bz2", "xz", "zst")


@pytest.mark.parametrize(("name", "compress"), [(f"a.jsonl.{kind}", COMPRESS[kind]) for kind in KINDS])
class TestCompression:
    DATA = records(3000)

    def test_members_one_after_the_other_are_one_stream(self, name, compress):
        plain = read_all("a.jsonl", data=self.DATA)
        assert read_all(name, data=compress(self.DATA)) == plain
        assert read_all(name, target_bytes=100, data=two_parts(compress, self.DATA)) == plain
        assert len(plain.texts) == 3000

    def test_every_whole_record_before_a_cut_is_kept(self, name, compress):
        packed = two_parts(compress, self.DATA)
        for cut in (9, 500, len(packed) // 4, len(packed) // 2 + 100, len(packed) - 1):
            block = read_all(name, data=packed[:cut])
            known = self.known(name, packed[:cut])
            whole = known[: known.rfind(b"\n") + 1]
            assert len(block.texts) == whole.count(b"\n")
            ((key, reason),) = reasons(block)
            assert (key, reason) == (str(len(whole)), "truncated_file")
            assert block.rejects[0].raw == known[len(whole) :]
            assert block.lost == cut

    @staticmethod
    def known(name, packed):
        """The bytes that another decompressor gets out of a cut file."""
        out = b""
        while packed:
            new: dict[str, Any] = {
                "gz": lambda: zlib.decompressobj(31),
                "bz2": bz2.BZ2Decompressor,
                "xz": lzma.LZMADecompressor,
                "zst": zstandard.ZstdDecompressor().decompressobj,
            }
            frame = new[name.rpartition(".")[2]]()
            out += frame.decompress(packed)
            packed = frame.unused_data
        return out

    def test_damage_in_the_middle(self, name, compress):
        data = records(20_000)
        packed = bytearray(compress(data))
        for place in range(2):
            packed[len(packed) * 3 // 4 + place] ^= 0xFF
        block = read_all(name, data=bytes(packed))
        (reject,) = block.rejects
        assert (reject.reason, block.texts, block.damaged, block.lost) == ("unreadable_file", [], 1, len(packed))

    @pytest.mark.parametrize("damaged", range(4))
    def test_nothing_is_kept_from_a_damaged_member_on(self, name, compress, damaged):
        parts = [records(3000 + number) for number in range(4)]
        packed = [bytearray(compress(part)) for part in parts]
        before = sum(map(len, packed[:damaged]))
        size = sum(map(len, packed))
        packed[damaged][len(packed[damaged]) // 2] ^= 0x04
        block = read_all(name, data=b"".join(packed))
        assert block.texts == read_all("a.jsonl", data=b"".join(parts[:damaged])).texts
        assert reasons(block) == [(str(sum(map(len, parts[:damaged]))), "unreadable_file")]
        assert (block.damaged, block.lost) == (1, size - before)

    def test_padding_and_text_behind_the_data(self, name, compress):
        packed = compress(self.DATA)
        plain = read_all("a.jsonl", data=self.DATA)
        assert read_all(name, data=packed + bytes(512)) == plain
        behind = read_all(name, data=packed + b"and then something else")
        assert (behind.texts, behind.damaged, behind.lost) == (plain.texts, 1, 23)

    def test_empty(self, name, compress):
        assert reasons(read_all(name, data=b"")) == [("0", "truncated_file")]
        assert read_all(name, data=compress(b"")).read == 0


LIMIT = 1 << 20
SIZE = 64 << 20
HEAD, TAIL = b'{"text": "before"}\n', b'\n{"text": "after"}\n'


def peak_of_reading(path, target_bytes):
    tracemalloc.start()
    try:
        block = read_all(path, ReadOptions(max_record_bytes=LIMIT), target_bytes)
        return block, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("target_bytes", [1 << 30, 32 << 20])
def test_a_line_of_64_mb_is_passed_by_in_little_memory(tmp_path, target_bytes):
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(HEAD)
        for _ in range(SIZE >> 20):
            file.write(b"x" * (1 << 20))
        file.write(TAIL)
    block, peak = peak_of_reading(path, target_bytes)
    assert block.texts == ["before", "after"]
    assert reasons(block) == [(str(len(HEAD)), "too_long")]
    assert block.rejects[0].detail.startswith(f"{SIZE:,} bytes")
    assert len(block.rejects[0].raw) == 64 << 10
    assert peak < 12 << 20


@pytest.mark.parametrize("compressor", ["gz", "zst"])
def test_a_compressed_line_of_64_mb_is_passed_by_in_little_memory(tmp_path, compressor):
    def pack(data):
        return gzip.compress(data, 1) if compressor == "gz" else zstandard.compress(data, 1)

    mebibyte = pack(b"x" * (1 << 20))
    packed = pack(HEAD) + mebibyte * (SIZE >> 20) + pack(TAIL)
    if compressor == "zst":  # one frame, the hardest case: it unpacks thirty-thousandfold
        packed = zstandard.compress(HEAD + b"x" * SIZE + TAIL, 1)
    path = tmp_path / f"a.jsonl.{compressor}"
    path.write_bytes(packed)
    block, peak = peak_of_reading(path, 1 << 30)
    assert block.texts == ["before", "after"]
    assert reasons(block) == [(str(len(HEAD)), "too_long")]
    assert peak < 48 << 20


@pytest.mark.parametrize("change", [-1, 1, None])
def test_a_file_that_changes_or_vanishes_is_an_error(tmp_path, change):
    path = tmp_path / "a.jsonl"
    path.write_bytes(records(20))
    for target in (100, 1 << 30):
        first, *_ = plan_ranges(str(path), ReadOptions(), target)
        if change is None:
            path.unlink()
        else:
            path.write_bytes((path.read_bytes() + b"\n")[: first.size + change])
        with pytest.raises(FarspanError, match=r"a.jsonl: (vanished|had [\d,]+ bytes) w"):
            list(read_records(first, ReadOptions()))
        path.write_bytes(records(20))


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
@pytest.mark.parametrize("same_time", [False, True])
def test_a_file_that_is_replaced_at_equal_size_is_an_error(tmp_path, name, same_time):
    path, other = tmp_path / name, tmp_path / "other"
    for place, letter in ((path, "a"), (other, "b")):
        if name.endswith("parquet"):
            pq.write_table(pa.table({"text": [letter * 9] * 20}), place)
        else:
            place.write_bytes((gzip.compress if name.endswith("gz") else bytes)(b'{"text": "%s"}' % letter.encode()))
    status = path.stat()
    assert other.stat().st_size == status.st_size
    (piece,) = plan_ranges(str(path), ReadOptions(), 1 << 30)
    os.utime(other, ns=(0, status.st_mtime_ns + (not same_time)))
    os.replace(other, path)
    with pytest.raises(FarspanError, match=rf"{name}: was written to or replaced while the job ran; put it back"):
        list(read_records(piece, ReadOptions()))


def test_an_object_that_is_replaced_at_equal_size_is_an_error(store, bucket):
    path = f"{bucket}/a.jsonl"
    files.write_bytes(path, b'{"text": "one"}')
    (piece,) = plan_ranges(path, ReadOptions(), 1 << 30)
    assert [block.texts for block in read_records(piece, ReadOptions())] == [["one"]]
    files.write_bytes(path, b'{"text": "two"}')
    with pytest.raises(FarspanError, match=r"a.jsonl: was written to or replaced while the job ran"):
        list(read_records(piece, ReadOptions()))


def test_blocks_are_bounded():
    data = b"".join(json.dumps({"text": "y" * 50_000}).encode() + b"\n" for _ in range(500))
    with stored("a.jsonl", data):
        (piece,) = plan_ranges("a.jsonl", ReadOptions(), 1 << 30)
        sizes = [sum(map(len, block.texts)) for block in read_records(piece, ReadOptions())]
    assert sum(sizes) == 500 * 50_000
    assert max(sizes) <= (8 << 20) + (2 << 20)
    assert len(sizes) <= 4


# Damaged files of lines: what is kept was in the sound file, and how a file is cut into ranges shows nowhere.
RECORDS = [json.dumps({"text": f"record {number} " + "caf\u00e9 \u4e16" * (number % 9)}) for number in range(120)]
DATA = "\n".join(RECORDS).encode()
SOUND = read_all("a.jsonl", data=DATA).texts


def broken(data, seed):
    draw = random.Random(seed)
    if seed % 2:
        return damaged(data, draw)
    changed = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(1000, 1300), marks=pytest.mark.slow)])
def test_plain_lines(seeds):
    for seed in seeds:
        data = broken(DATA, seed)
        for name, options in (("a.jsonl", ReadOptions()), ("a.txt", ReadOptions(format="lines"))):
            whole = read_all(name, options, data=data)
            assert read_all(name, options, random.Random(seed).randint(1, 3000), data) == whole
            assert whole.damaged == 0  # lines may be bad, but a plain file cannot be known to be damaged
            assert whole.read > 0


@pytest.mark.parametrize(
    ("seeds", "least"), [(range(40), 30), pytest.param(range(1000, 1300), 270, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_compressed_lines(kind, seeds, least):
    """Damaged files of three members each."""
    third = len(DATA) // 3
    packed = b"".join(COMPRESS[kind](part) for part in (DATA[:third], DATA[third : 2 * third], DATA[2 * third :]))
    found = 0
    for seed in seeds:
        changed = broken(packed, seed)
        block = read_all(f"a.jsonl.{kind}", data=changed)
        # a checksum stands behind every member: what is kept is sound, from the beginning and without a gap; but damage
        # by which a member goes on to the end of the file cannot be told from a cut
        if not any(reject.reason == "truncated_file" for reject in block.rejects):
            assert block.texts == SOUND[: len(block.texts)]
        assert len(block.texts) == len(SOUND) or block.rejects
        assert block.lost <= len(changed)
        found += bool(block.damaged)
    assert found > least
