"""Objects on S3: whole or not there, read by ranges, and refusals in one line."""

import io
import tempfile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpora.errors import FarspanError, StoreError
from corpora.storage import files
from corpora.storage.files import read_bytes, sweep, write_bytes
from corpora.storage.shards import read_shard
from corpora.storage.stores import connect, object_store, remote
from corpora.storage.stores.client_errors import Unsupported
from corpora.storage.stores.remote import BUFFER


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The folder that temporary files go to."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


PART_BYTES = object_store._PART  # what is smaller goes up with one request


@pytest.mark.parametrize("size", [0, 1, BUFFER, BUFFER + 1, 3 << 20])
def test_what_was_written_is_read(bucket, size):
    data = np.random.default_rng(size).bytes(size)
    write_bytes(f"{bucket}/a/b", data)
    assert read_bytes(f"{bucket}/a/b") == data
    assert files.size(f"{bucket}/a/b") == size


def test_a_large_object_goes_up_in_parts_and_appears_at_the_end(bucket, store):
    data = np.random.default_rng(0).bytes(PART_BYTES + (6 << 20))
    with files.create(f"{bucket}/large") as file:
        for start in range(0, len(data), 3 << 20):
            assert file.tell() == start
            file.write(data[start : start + (3 << 20)])
            assert not files.exists(f"{bucket}/large")
    assert read_bytes(f"{bucket}/large") == data
    assert sum("partNumber" in query for _, _, query, _ in store.requests) == 2


@pytest.mark.parametrize("size", [10, PART_BYTES + 1])
@pytest.mark.parametrize("failure", [KeyError, KeyboardInterrupt])
def test_a_writer_that_fails_changes_nothing(bucket, store, scratch, size, failure):
    write_bytes(f"{bucket}/a", b"before")
    store.requests.clear()
    for name in ("a", "b"):
        with pytest.raises(failure), files.create(f"{bucket}/{name}") as file:
            file.write(bytes(size))
            raise failure
    assert not store.requests
    assert files.walk(bucket) == [f"{bucket}/a"]
    assert read_bytes(f"{bucket}/a") == b"before"
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("part", [1, 2, 3])
def test_an_upload_that_the_store_breaks_off_shows_nothing(bucket, store, scratch, part):
    write_bytes(f"{bucket}/a", b"before")
    store.refused = f"partNumber={part}&"
    with pytest.raises(FarspanError, match=r"s3://bucket/a: .*check --s3_access_key_id"):
        write_bytes(f"{bucket}/a", bytes(2 * PART_BYTES + 1))
    assert store.refused == ""
    assert read_bytes(f"{bucket}/a") == b"before"
    assert not list(scratch.iterdir())


READS = st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.integers(-70, 70), st.integers(-1, 40)), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(size=st.integers(0, 60), reads=READS)
def test_any_order_of_reads_is_that_of_a_file(bucket, monkeypatch, size, reads):
    monkeypatch.setattr(remote, "BUFFER", 16)
    data = bytes(range(size))
    write_bytes(f"{bucket}/object", data)
    expected = io.BytesIO(data)
    with files.open(f"{bucket}/object") as file:
        for whence, offset, count in reads:
            place = max(0, offset + (0, expected.tell(), size)[whence])
            assert file.seek(place) == expected.seek(place)
            assert file.read(count) == expected.read(count)


def test_a_small_file_costs_one_request(bucket, store):
    store.requests.clear()
    write_bytes(f"{bucket}/small", b"x" * 1000)
    assert store.asked("PUT", "small") == len(store.requests) == 1
    store.requests.clear()
    with files.open(f"{bucket}/small") as file:
        for place in (900, 0, 500):
            file.seek(place)
            file.read(10)
    assert [method for method, *_ in store.requests] == ["GET"]


def test_lines_are_fetched_a_buffer_at_a_time(bucket, store):
    write_bytes(f"{bucket}/lines", b"a short line\n" * 250_000)  # 3.1 buffers
    store.requests.clear()
    with files.open(f"{bucket}/lines") as file:
        assert sum(1 for _ in file) == 250_000
    assert store.asked("GET", "lines") == 4


def test_one_record_batch_costs_its_bytes_and_three_requests(bucket, store):
    batch = pa.record_batch({"x": np.random.default_rng(0).integers(0, 1 << 60, 25_000)})  # 200 kB
    with files.create(f"{bucket}/batches") as file, pa.ipc.new_file(pa.PythonFile(file, "w"), batch.schema) as writer:
        for _ in range(40):
            writer.write_batch(batch)
    store.requests.clear()
    with files.open(f"{bucket}/batches") as file:
        assert pa.ipc.open_file(pa.PythonFile(file, "r")).get_batch(7).equals(batch)
    assert store.asked("GET", "batches") <= 3
    assert len(store.requests) == store.asked("GET", "batches")
    fetched = sum(int(last) - int(first) + 1 for first, last in store.ranges())
    assert fetched < 200_000 + 2 * BUFFER
    store.requests.clear()
    assert sum(len(found) for found in read_shard(f"{bucket}/batches")) == 40 * 25_000
    assert len(store.requests) < 20


def test_an_answer_that_breaks_off_is_asked_for_again(bucket, store):
    write_bytes(f"{bucket}/a", bytes(range(200)))
    store.cut.add("/bucket/a")
    store.requests.clear()
    assert read_bytes(f"{bucket}/a") == bytes(range(200))
    assert store.asked("GET", "/bucket/a") == 2


@pytest.mark.parametrize("size", [1000, 5 * BUFFER])
def test_an_object_replaced_while_it_is_read_is_noticed(bucket, size):
    write_bytes(f"{bucket}/a", bytes(4 * BUFFER))
    with (
        pytest.raises(FarspanError, match=r"s3://bucket/a: .*replaced or deleted while it was read"),
        files.open(f"{bucket}/a") as file,
    ):
        file.read(10)
        write_bytes(f"{bucket}/a", b"x" * size)
        file.read()


def test_an_object_replaced_at_equal_size_has_another_state(bucket):
    write_bytes(f"{bucket}/a", b"before")
    before = files.state(f"{bucket}/a")
    assert files.state(f"{bucket}/a") == before
    write_bytes(f"{bucket}/a", b"after!")
    assert files.state(f"{bucket}/a") != before


def test_refusals_in_the_middle_of_a_read(bucket, store):
    for name in ("a", "b"):
        write_bytes(f"{bucket}/{name}", bytes(4 * BUFFER))
    with files.open(f"{bucket}/a") as file:
        file.read(10)
        files.delete([f"{bucket}/a"])
        with pytest.raises(FarspanError, match=r"s3://bucket/a: .*replaced or deleted while it was read"):
            file.read()
    with files.open(f"{bucket}/b") as file:
        file.read(10)
        store.refused = "/bucket/b"
        with pytest.raises(FarspanError, match=r"s3://bucket/b: .*check --s3_access_key_id"):
            file.read()


def test_globs_stop_at_slashes_and_folder_markers_are_no_files(store):
    bucket = store.make_bucket("marked")
    names = ["a.txt", "b.txt", "d/c.txt", "d/e/f.txt", "d[1]/ä é+%.txt", "dd/g.txt"]
    for name in names:
        write_bytes(f"{bucket}/{name}", b"x")
    store.ask("PUT", "/marked/d/")

    def found(paths):
        return [path.removeprefix(f"{bucket}/") for path in paths]

    assert found(files.walk(bucket)) == sorted(names)
    assert found(files.walk(f"{bucket}/d")) == ["d/c.txt", "d/e/f.txt"]
    assert found(files.walk(f"{bucket}/d[1]")) == ["d[1]/ä é+%.txt"]
    assert found(files.match(f"{bucket}/*.txt")) == ["a.txt", "b.txt"]
    assert found(files.match(f"{bucket}/d/**.txt")) == ["d/c.txt", "d/e/f.txt"]
    assert found(files.match(f"{bucket}/d[1]/ä é+%.txt")) == ["d[1]/ä é+%.txt"]
    assert found(files.match(f"{bucket}/d/c.txt")) == ["d/c.txt"]
    assert files.match(f"{bucket}/d") == files.match(bucket) == []


def test_deleting_takes_many_and_what_is_gone_already(bucket):
    for number in range(3):
        write_bytes(f"{bucket}/{number}.tmp-1", b"x")
    files.delete([f"{bucket}/gone", f"{bucket}/0.tmp-1", *(f"{bucket}/none-{n}" for n in range(1500))])
    assert len(files.walk(bucket)) == 2
    sweep(bucket)
    assert files.walk(bucket) == []


def test_no_folder_markers_come_into_being(bucket, store):
    names = [f"{bucket}/folder/inner/{n}" for n in range(3)]
    for name in names:
        write_bytes(name, b"x")
    files.delete(names)
    assert store.asked("POST", "/bucket") == 1
    assert store.keys("bucket") == []


def test_a_missing_object_is_no_refusal(bucket):
    for call in (files.open, files.size):
        with pytest.raises(FileNotFoundError, match="s3://bucket/a: no such file"):
            call(f"{bucket}/a")


def test_one_of_several_creates_an_object(bucket, store):
    assert files.create_new(f"{bucket}/claims/a.1", b"one")
    assert not files.create_new(f"{bucket}/claims/a.1", b"two")
    assert read_bytes(f"{bucket}/claims/a.1") == b"one"
    store.requests.clear()
    assert files.create_new(f"{bucket}/claims/b.1", b"one")
    assert [(method, path) for method, path, *_ in store.requests] == [("PUT", f"/{bucket[5:]}/claims/b.1")]
    files.delete([f"{bucket}/claims/a.1"])
    assert files.names(f"{bucket}/claims") == ["b.1"]
    assert files.create_new(f"{bucket}/claims/a.1", b"two")


def test_an_object_is_renewed_and_never_brought_back(bucket):
    write_bytes(f"{bucket}/life/one", b"1")
    assert files.renew(f"{bucket}/life/one", b"2")
    assert read_bytes(f"{bucket}/life/one") == b"2"
    files.delete([f"{bucket}/life/one"])
    assert not files.renew(f"{bucket}/life/one", b"1")
    assert files.walk(bucket) == []


@pytest.mark.parametrize("known", [True, False])
def test_a_store_that_is_busy_is_asked_again_for_as_long_as_is_wished(bucket, store, monkeypatch, known):
    write_bytes(f"{bucket}/a", b"x")
    monkeypatch.setenv(connect.PATIENCE, "30")
    monkeypatch.setattr(connect, "_FIRST", 0.05)
    if not known:
        object_store._answered.clear()
    store.unavailable = 4
    assert read_bytes(f"{bucket}/a") == b"x"
    store.unavailable = 3
    write_bytes(f"{bucket}/b", b"y")
    store.unavailable = 3
    assert files.create_new(f"{bucket}/c", b"z")
    store.unavailable = 3
    assert len(files.walk(bucket)) == 3
    assert store.unavailable == 0
    monkeypatch.setenv(connect.PATIENCE, "0.3")
    store.unavailable = 1000
    with pytest.raises(StoreError, match=r"^s3://bucket/a: .*(SlowDown: Reduce|503 Service).*; finished work is kept"):
        files.open(f"{bucket}/a")
    store.unavailable = 0
    monkeypatch.setenv(connect.PATIENCE, "soon")
    with pytest.raises(FarspanError, match=r"FARSPAN_STORE_PATIENCE is 'soon'; give a number of seconds above 0"):
        files.open(f"{bucket}/a")
    monkeypatch.delenv(connect.PATIENCE)


def test_of_two_that_create_an_object_the_one_whose_answer_is_lost_has_it(bucket, store):
    store.lost.add(("PUT", "/bucket/claim"))
    assert files.create_new(f"{bucket}/claim", b"one")
    assert store.lost == set()
    assert not files.create_new(f"{bucket}/claim", b"two")
    store.lost.add(("PUT", "/bucket/claim"))
    assert not files.create_new(f"{bucket}/claim", b"two")
    assert read_bytes(f"{bucket}/claim") == b"one"


def test_an_upload_and_a_renewal_whose_answers_are_lost_stay(bucket, store):
    store.lost.add(("PUT", "/bucket/a"))
    with files.guard_creation(lambda: None, refuse):
        write_bytes(f"{bucket}/a", b"first")
    store.lost.add(("PUT", "/bucket/a"))
    assert files.renew(f"{bucket}/a", b"renewed")
    assert read_bytes(f"{bucket}/a") == b"renewed"
    assert store.lost == set()
    store.lost.add(("PUT", "/bucket/a"))
    write_bytes(f"{bucket}/a", b"second")
    store.lost.add(("GET", "/bucket/a"))
    assert read_bytes(f"{bucket}/a") == b"second"
    store.lost.add(("POST", "/bucket"))
    files.delete([f"{bucket}/a"])
    assert store.lost == set()


class Taken(Exception):
    """Another file has the name."""


def refuse() -> None:
    raise Taken


@pytest.mark.parametrize("size", [0, 10, PART_BYTES + (1 << 20)])
def test_of_two_files_with_one_name_the_first_stays(bucket, store, size):
    unfinished = store.ask("GET", "/bucket?uploads").count("<UploadId>")
    first, second = (np.random.default_rng(seed).bytes(size) for seed in (1, 2))
    second += b"x"
    with files.guard_creation(lambda: None, refuse):
        write_bytes(f"{bucket}/a", first)
        write_bytes(f"{bucket}/a", first)  # a repeated attempt
        with pytest.raises(Taken):
            write_bytes(f"{bucket}/a", second)
        assert read_bytes(f"{bucket}/a") == first
    with files.guard_creation(lambda: None, lambda: None):
        write_bytes(f"{bucket}/a", second)
    assert read_bytes(f"{bucket}/a") == second
    assert store.ask("GET", "/bucket?uploads").count("<UploadId>") == unfinished


@pytest.mark.parametrize("refused", [True, False])
def test_a_store_without_conditional_writes_or_for_less_at_once_replaces(bucket, store, monkeypatch, refused):
    if refused:
        monkeypatch.setattr(store, "conditions", False)
        with pytest.raises(Unsupported, match="the store refuses If-None-Match"):
            files.create_new(f"{bucket}/claim", b"one")
    else:
        monkeypatch.setattr(object_store, "_WHOLE", 4)
    for data in (b"first", b"second"):
        with files.guard_creation(lambda: None, refuse):
            write_bytes(f"{bucket}/a", data)
        assert read_bytes(f"{bucket}/a") == data
