"""Every kind of damage that `verify` promises to find is done to a sound corpus, and found."""

import os
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.storage.manifest_file import list_files, read_manifest, write_manifest
from corpora.storage.shards import map_shard, write_shard
from corpora.verify.artefact import verify
from tests.artefacts import edit_sealed, make_documents


def rewrite(folder, change, name="part-00000-of-00002.arrow"):
    """Change a shard's table and make manifest and checksum agree with it, so that only the meaning is wrong."""
    path = os.path.join(folder, "shards", name)
    table = pa.Table.from_batches(_batches(path))
    schema = table.schema
    table = change(table)
    os.remove(path)
    with write_shard(path, schema, 8) as (writer, info):
        for batch in table.cast(schema).to_batches():
            writer.write(batch)
    with edit_sealed(os.path.join(folder, "manifest.json")) as manifest:
        manifest["shards"] = [vars(info[0]) if s["name"] == name else s for s in manifest["shards"]]
        manifest["totals"]["sequences"] = sum(shard["rows"] for shard in manifest["shards"])


def _batches(path):
    reader = map_shard(path)[1]
    return [reader.get_batch(index) for index in range(reader.num_record_batches)]


def column(table, name, values):
    index = table.schema.get_field_index(name)
    return table.set_column(index, table.schema.field(name), pa.array(values, table.schema.field(name).type))


def test_sound_artefacts_have_no_problems(sound, tmp_path):
    assert verify(sound) == []
    assert verify(make_documents(str(tmp_path / "documents"))) == []


def copies(folder):
    """All other files that an artefact may have, named in its manifest."""
    for name in ("rejects/documents-00000.arrow", "near-duplicates/link-00000.arrow"):
        with write_shard(os.path.join(folder, name), pa.schema([("reason", pa.string())]), 8) as (writer, _):
            writer.write(pa.record_batch([pa.array(["too_long"])], names=["reason"]))
    np.save(os.path.join(folder, "centroids.npy"), np.ones((2, 3), np.float32))
    write_manifest(folder, replace(read_manifest(folder), files=list_files(folder)))
    return sorted(list_files(folder))


def test_a_temporary_file_is_no_part_of_an_artefact(corpus):
    for place in ("shards/part-00000-of-00002.arrow", "tokenizer/tokenizer.json"):
        shutil.copy(os.path.join(corpus, place), os.path.join(corpus, f"{place}.tmp-dead"))
    assert verify(corpus) == []


def test_every_other_file_is_looked_at(corpus):
    names = copies(corpus)
    assert len(names) == 5
    assert verify(corpus) == []
    for name in names:
        path = os.path.join(corpus, name)
        data = open(path, "rb").read()
        open(path, "wb").write(data[: len(data) // 2])
        assert any(problem.startswith(name) or "tokenizer" in problem for problem in verify(corpus)), name
        open(path, "wb").write(data[:-12] + bytes([data[-12] ^ 1]) + data[-11:])
        assert any(problem.startswith(f"{name}: ") for problem in verify(corpus)), name
        os.remove(path)
        assert f"{name}: No such file or directory" in verify(corpus)
        open(path, "wb").write(data)
    open(os.path.join(corpus, "rejects", "stranger"), "wb").close()
    open(os.path.join(corpus, "README.md"), "wb").close()
    assert [p for p in verify(corpus) if "stranger" in p] == ["rejects/stranger: not in the manifest"]


def test_a_pipe_in_place_of_a_shard_is_not_waited_for(corpus):
    path = os.path.join(corpus, "shards", sorted(os.listdir(os.path.join(corpus, "shards")))[0])
    os.remove(path)
    os.mkfifo(path)
    assert "shards/part-00000-of-00002.arrow: a named pipe, not a regular file" in verify(corpus)
    with pytest.raises(FarspanError, match=rf"{path}: not a readable shard .*not a regular file"):
        map_shard(path)


def test_missing_truncated_flipped_and_foreign_shards(corpus):
    shards = sorted(os.listdir(os.path.join(corpus, "shards")))
    first, second = (os.path.join(corpus, "shards", name) for name in shards)
    data = bytearray(open(first, "rb").read())
    data[len(data) // 2] ^= 1
    open(first, "wb").write(data)
    open(second, "r+b").truncate(1000)
    open(os.path.join(corpus, "shards", "stranger.arrow"), "wb").close()
    problems = "\n".join(verify(corpus))
    assert "part-00000" in problems
    assert "damaged" in problems
    assert "truncated" in problems
    assert "stranger.arrow: not in the manifest" in problems
    os.remove(first)
    assert any("missing" in problem for problem in verify(corpus))


def test_a_lost_row_breaks_the_sums(corpus):
    rewrite(corpus, lambda table: table.slice(0, 3))
    problems = "\n".join(verify(corpus))
    assert "totals say" in problems
    assert "hold" in problems


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, None),
        ({"files": 3}, "counts of 'made' say 3 files, inputs list 2"),
        ({"bytes": 29}, "counts of 'made' say 29 bytes, inputs list 30"),
        ({"damaged_files": 3}, "say 3 damaged files of 2"),
        ({"lost_bytes": 31}, "say 31 lost bytes of 30"),
    ],
)
def test_counts_of_files_are_checked(tmp_path, change, message):
    folder = make_documents(str(tmp_path / "documents"))
    manifest: Any = read_manifest(folder)
    inputs = tuple({"path": f"made:{name}", "bytes": size} for name, size in (("a", 10), ("b", 20)))
    manifest.counts["made"].update({"files": 2, "damaged_files": 2, "bytes": 30, "lost_bytes": 15} | change)
    write_manifest(folder, replace(manifest, inputs=inputs))
    assert [problem for problem in verify(folder) if message is None or message not in problem] == []
    assert bool(verify(folder)) == (message is not None)


def test_a_source_without_counts_of_its_files_is_found(tmp_path):
    folder = make_documents(str(tmp_path / "documents"))
    manifest: Any = read_manifest(folder)
    manifest.counts["made"].update({"files": 0, "bytes": 0})
    write_manifest(folder, replace(manifest, inputs=({"path": "other:a", "bytes": 10},)))
    assert [problem.partition(" say ")[2] for problem in verify(folder)] == [
        "0 files, inputs list 1",
        "0 bytes, inputs list 10",
    ]


def test_counts_and_tokenizer_are_checked(corpus):
    manifest: Any = read_manifest(corpus)
    manifest.counts["made"]["rejected"] = 5
    write_manifest(corpus, manifest)
    assert "do not reconcile" in "\n".join(verify(corpus))
    for name, value in (("fingerprint", "another"), ("vocab_size", 4000), ("owned_tokens", {"<eos>": 9})):
        lying = replace(manifest, tokenizer={**manifest.tokenizer, name: value})
        write_manifest(corpus, lying)
        assert any(p.startswith("tokenizer/: ") and str(value)[-3:-1] in p for p in verify(corpus))
        with pytest.raises(FarspanError, match="its tokenizer is not that of its manifest"):
            Corpus(corpus).check_files()
    write_manifest(corpus, manifest)
    shutil.rmtree(os.path.join(corpus, "tokenizer"))
    assert any(problem.startswith("tokenizer/") for problem in verify(corpus))


def test_documents_whose_manifest_lies_and_ids_that_repeat(tmp_path):
    documents = make_documents(str(tmp_path / "documents"))
    manifest: Any = read_manifest(documents)
    manifest.totals["tokens"] += 1
    manifest.totals["held_out_tokens"] = 0
    write_manifest(documents, manifest)
    assert sum("totals say" in problem for problem in verify(documents)) == 2
    shards = [os.path.join(documents, "shards", shard.name) for shard in manifest.shards]
    shutil.copy(shards[0], shards[1])
    with edit_sealed(os.path.join(documents, "manifest.json")) as values:
        values["shards"][1] = {**values["shards"][0], "name": values["shards"][1]["name"]}
    assert sum("occurs twice" in problem for problem in verify(documents)) == 40
