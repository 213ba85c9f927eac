"""Files by path, on this machine's disk; shards and rows of artefacts: written, mapped, damaged, missing."""

import errno
import hashlib
import os
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.storage import files
from corpora.storage import shards as module
from corpora.storage.files import read_bytes, read_user_file, read_user_json, read_user_toml, write_bytes
from corpora.storage.manifest_file import read_manifest
from corpora.storage.sharded_rows import ShardedRows
from corpora.storage.shards import list_shards, map_shard, write_shard
from corpora.storage.stores.local_disk import temporary_name
from tests.artefacts import all_rows, make_corpus, make_documents, make_pairs, make_predictions
from tests.neighbours import make_neighbours
from tests.vectors import make_vectors


def test_a_check_before_publishing_keeps_a_file_back(tmp_path):
    path, calls = str(tmp_path / "file"), []

    def refuse() -> None:
        calls.append(files.exists(path))
        raise RuntimeError("lost the lock")

    with pytest.raises(RuntimeError, match="lost the lock"), files.guard_creation(refuse):
        files.write_bytes(path, b"data")
    assert calls == [False]
    assert files.walk(str(tmp_path)) == []
    files.write_bytes(path, b"data")  # the check ended with its block
    assert files.read_bytes(path) == b"data"


def test_one_of_several_creates_a_file(tmp_path):
    path = str(tmp_path / "lock")
    assert files.create_new(path, b"first")
    assert not files.create_new(path, b"second")
    assert files.read_bytes(path) == b"first"
    assert files.renew(path, b"third")
    assert files.read_bytes(path) == b"third"
    files.delete([path, path])
    assert not files.renew(path, b"third")
    files.delete([])
    assert files.walk(str(tmp_path)) == files.walk(str(tmp_path / "none")) == []


def test_a_sweep_deletes_temporary_files_alone(tmp_path):
    kept = [str(tmp_path / "a"), str(tmp_path / "b" / "c")]
    for path in kept:
        files.write_bytes(path, b"")
        files.write_bytes(temporary_name(path), b"half")
    assert len(files.walk(str(tmp_path))) == 4
    files.sweep(str(tmp_path))
    assert files.walk(str(tmp_path)) == sorted(kept)
    assert files.match(str(tmp_path / "*")) == [kept[0]]


def test_values_come_back(tmp_path):
    (tmp_path / "a.json").write_text('{"b": 1, "b": [2]}')
    (tmp_path / "a.toml").write_text("a = 'é'\n", "utf-8")
    assert read_user_file(tmp_path / "a.toml") == "a = 'é'\n".encode()
    assert read_user_json(str(tmp_path / "a.json")) == {"b": [2]}
    assert read_user_json(tmp_path / "a.json", pairs=tuple) == (("b", 1), ("b", [2]))
    assert read_user_toml(tmp_path / "a.toml") == {"a": "é"}


@pytest.mark.parametrize("read", [read_user_file, read_user_json, read_user_toml])
def test_what_is_no_regular_file_is_refused(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    places = {"pipe": "a named pipe, not", "link": "a named pipe, not", "gone": "No such file", ".": "a folder, not"}
    for path, reason in [*((tmp_path / name, reason) for name, reason in places.items()), ("/dev/zero", "a device")]:
        with pytest.raises(FarspanError, match=rf"^{path}: {reason}.*; give a regular file"):
            read(path)


@pytest.mark.parametrize(
    ("read", "data", "reason"),
    [
        (read_user_json, b"[" * 100_000, "brackets are nested too deep"),
        (read_user_json, b'{"a":' * 100_000, "brackets are nested too deep"),
        (read_user_json, b"1" * 5000, "not JSON: .*digits"),
        (read_user_json, b"\xff", "not JSON"),
        (read_user_toml, b"a = " + b"[" * 100_000, "brackets are nested too deep"),
        (read_user_toml, b"a = " + b"1" * 5000, "not TOML: .*digits"),
        (read_user_toml, b"a = '\xff'", "not TOML"),
    ],
)
def test_what_cannot_be_parsed_is_refused(tmp_path, read, data, reason):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(FarspanError, match=rf"^{tmp_path}/a: .*{reason}") as error:
        read(tmp_path / "a")
    assert "\n" not in str(error.value)


def test_pipes_devices_and_open_files_are_written_to_and_stay(tmp_path):
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_bytes(pipe, b"some")
    assert os.read(reader, 10) == b"some"
    os.close(reader)
    assert os.listdir(tmp_path) == ["pipe"]
    with open(tmp_path / "a", "w+b") as file:
        write_bytes(f"/dev/fd/{file.fileno()}", b"some")
    write_bytes("/dev/null", b"nothing")
    assert (tmp_path / "a").read_bytes() == b"some"


@pytest.mark.parametrize("failure", [KeyError, KeyboardInterrupt])
def test_a_writer_that_fails_changes_nothing(tmp_path, failure):
    write_bytes(str(tmp_path / "a"), b"before")
    for name in ("a", "b"):
        with pytest.raises(failure), files.create(str(tmp_path / name)) as file:
            file.write(b"half")
            raise failure
    assert os.listdir(tmp_path) == ["a"]
    assert read_bytes(str(tmp_path / "a")) == b"before"


def test_a_full_disk_is_told_with_the_files_own_name(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match="No space left") as caught:
        write_bytes(str(tmp_path / "a"), b"x")
    assert caught.value.filename == str(tmp_path / "a")
    assert os.listdir(tmp_path) == []


def test_files_reach_the_disk_before_their_name(tmp_path, monkeypatch):
    order = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: (order.append("fsync"), sync(number)))
    monkeypatch.setattr(os, "replace", lambda *names: (order.append("replace"), replace(*names)))
    write_bytes(str(tmp_path / "a"), b"x")
    assert order == ["fsync", "replace"]


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_is_not_to_be_replaced_stays_there(tmp_path, monkeypatch, links):
    """A file system without hard links replaces it."""
    path, asked = str(tmp_path / "a"), []

    def refuse() -> None:
        asked.append(read_bytes(path))
        raise KeyError("taken")

    if not links:
        monkeypatch.setattr(os, "link", Mock(side_effect=OSError(errno.EPERM, "Operation not permitted")))
    with files.guard_creation(lambda: None, refuse):
        for _ in range(2):
            write_bytes(path, b"first")
        if links:
            with pytest.raises(KeyError):
                write_bytes(path, b"other")
        else:
            write_bytes(path, b"other")
    assert (asked, read_bytes(path)) == (([b"first"], b"first") if links else ([], b"other"))
    with files.guard_creation(lambda: None, lambda: asked.append(b"replaced")):
        write_bytes(path, b"third")
    assert read_bytes(path) == b"third"
    assert os.listdir(tmp_path) == ["a"]


SCHEMA = pa.schema([pa.field("tokens", pa.large_list(pa.uint16()))])


def rows_of(*sizes):
    return pa.record_batch([pa.array([list(range(size)) for size in sizes], SCHEMA.field(0).type)], schema=SCHEMA)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_batches_have_a_constant_number_of_rows_however_they_are_written(tmp_path, compression):
    paths = [str(tmp_path / name) for name in ("one", "many")]
    with write_shard(paths[0], SCHEMA, 4, compression) as (writer, info):
        writer.write(rows_of(*range(11)))
    with write_shard(paths[1], SCHEMA, 4, compression) as (writer, _):
        for size in range(11):
            writer.write(rows_of(size))
    reader = map_shard(paths[0])[1]
    assert [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)] == [4, 4, 3]
    data = [open(path, "rb").read() for path in paths]
    assert data[0] == data[1]
    assert (info[0].rows, info[0].tokens, info[0].bytes) == (11, sum(range(11)), len(data[0]))
    assert info[0].sha256 == hashlib.sha256(data[0]).hexdigest()


@pytest.mark.parametrize("damage", [lambda d: d[:-20], lambda d: b"not arrow at all", lambda d: b""])
def test_a_damaged_shard_is_named(tmp_path, damage):
    path = tmp_path / "shard.arrow"
    with write_shard(str(path), SCHEMA, 4) as (writer, _):
        writer.write(rows_of(1, 2, 3))
    path.write_bytes(damage(path.read_bytes()))
    for ahead in (True, False):
        with pytest.raises(FarspanError, match=r"shard\.arrow"):
            map_shard(str(path), ahead)


def test_a_local_shard_is_compared_once_until_it_changes(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_compared", set())  # as in a process that begins
    folder = str(shutil.copytree(corpus, tmp_path / "copy"))
    shards = list_shards(folder, read_manifest(folder))
    compared: list[str] = []
    real = module.StoredShard.compare
    monkeypatch.setattr(module.StoredShard, "compare", lambda one, data: compared.append(one.path) or real(one, data))
    for _ in range(3):
        shards[0].map()
    assert compared == [shards[0].path]
    with pytest.raises(FarspanError, match="sha256"):
        replace(shards[0], sha256="0" * 64).map()
    data = bytearray(Path(shards[0].path).read_bytes())
    data[len(data) // 2] ^= 1
    Path(shards[0].path).write_bytes(data)
    with pytest.raises(FarspanError, match="sha256"):
        shards[0].map()
    Path(shards[0].path).unlink()
    with pytest.raises(FarspanError, match="No such file"):
        shards[0].map()


def copied(corpus, tmp_path, change) -> tuple[str, str]:
    """A copy of the corpus with the bytes of its second shard changed; the shard too."""
    folder = shutil.copytree(corpus, tmp_path / "copy")
    shard = sorted((folder / "shards").iterdir())[1]
    shard.write_bytes(change(shard.read_bytes()))
    return str(folder), str(shard)


def listed(row: dict) -> dict:
    """A row with lists in place of arrays."""
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in row.items()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    """Artefacts of several kinds, named by their kinds."""
    folder = tmp_path_factory.mktemp("artefacts")
    documents = make_documents(str(folder / "documents"), titles=("Emma", None))
    make_corpus(str(folder / "corpus"))
    pairs = make_pairs(str(folder / "pairs"), documents, options=2, shards=3)
    make_predictions(str(folder / "predictions"), pairs)
    make_neighbours(str(folder / "neighbours"), documents)
    make_vectors(str(folder / "vectors"), documents)
    return folder


@pytest.mark.parametrize("kind", ["documents", "corpus", "pairs", "predictions", "neighbours", "vectors"])
def test_rows_are_those_of_arrow_one_by_one_and_sliced(folders: Path, kind: str):
    rows = ShardedRows(str(folders / kind), f"farspan.{kind}")
    expected = all_rows(folders / kind, f"farspan.{kind}")
    assert [listed(row) for row in rows] == expected
    assert len(rows) == len(expected)
    numbers: tuple[Any, ...] = (0, 7, len(expected) - 1, -1, -len(expected), np.int64(3))
    for number in numbers:
        assert listed(rows[number]) == expected[number]
    for part in (slice(2, 5), slice(None, None, -7), slice(-2, None), slice(5, 5)):
        assert [listed(row) for row in rows[part]] == expected[part]


@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        *((row, IndexError, rf"row {row} of .*/corpus, which has rows 0 to 60") for row in (-62, 61, 10**12)),
        *((rows, TypeError, "give the number of a row or a slice; take and to_p") for rows in ([0, 2], "tokens")),
    ],
)
def test_what_is_no_row_is_refused(folders: Path, row: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        Corpus(str(folders / "corpus"))[row]


def test_a_slice_is_no_list_of_rows_for_pandas(folders: Path):
    rows: Any = slice(0, 10)
    with pytest.raises(TypeError, match=r"to_pandas\(slice\(0, 10, None\)\): give a list of row numbers or a range"):
        Corpus(str(folders / "corpus")).to_pandas(rows)


def test_an_artefact_prints_what_it_holds(folders: Path):
    assert repr(Corpus(str(folders / "corpus"))).splitlines() == [
        f"Corpus('{folders}/corpus'): 61 rows in 2 shards",
        "  totals: 80 documents, 117 positions of padding, 138 parts, 61 sequences, 7,431 tokens",
        "  columns: sequence_id, tokens, document_starts, document_ids, document_offsets, document_lengths, "
        "sentence_starts, cluster_id",
    ]
    assert repr(ShardedRows(str(folders / "vectors"), "farspan.vectors")) == (
        f"ShardedRows('{folders}/vectors'): 96 rows in 3 shards\n  totals: 96 documents, 5,901 tokens"
    )


def test_shards_that_are_missing_or_cut_short_are_named_without_reading(corpus, tmp_path):
    Corpus(corpus).check_files()
    folder, shard = copied(corpus, tmp_path, lambda data: data[:-8])
    with pytest.raises(FarspanError, match=rf"{shard}: not a readable shard \([\d,]+ bytes where the manifest says"):
        Corpus(folder).check_files()
    os.remove(shard)
    with pytest.raises(FarspanError, match=rf"{shard}: not a readable shard .*No such file"):
        Corpus(folder).check_files()


def test_checksums_are_compared_when_asked_or_at_the_first_touch(corpus, tmp_path):
    flipped = copied(corpus, tmp_path, lambda data: data[:900] + bytes([data[900] ^ 1]) + data[901:])
    trusting, careful = Corpus(flipped[0]), Corpus(flipped[0], verify=True)
    trusting.check_files()
    trusting.check_shard(0)
    with pytest.raises(FarspanError, match=rf"{flipped[1]}: .*sha256 \w+ where the manifest says"):
        trusting.check_shard(1)
    first, second = np.array([0]), trusting.starts[1:2]
    careful.take(first)
    for reader in (careful, pickle.loads(pickle.dumps(careful))):
        with pytest.raises(FarspanError, match=rf"{flipped[1]}: .*sha256 \w+ where the manifest says"):
            reader.take(second)
        with pytest.raises(FarspanError, match="sha256"):
            reader.gather_tokens(second, np.zeros((1, 5), np.int64))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            lambda data: data.replace(b"document_starts", b"document_ztarts"),
            r"\(its columns are not those of farspan.c",
        ),
        (
            lambda data: data[:1000] + b"\xff" * 3000 + data[4000:],
            "",
        ),  # all record batches but not their index at the end
    ],
)
def test_a_damaged_shard_is_named_where_its_rows_are_read(corpus, tmp_path, change, fault):
    folder, shard = copied(corpus, tmp_path, change)
    with pytest.raises(FarspanError, match=rf"{shard}: not a readable shard {fault}"):
        Corpus(folder).take(np.arange(len(Corpus(folder))))
