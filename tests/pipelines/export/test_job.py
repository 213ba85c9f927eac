"""``farspan export``: the same bytes for any number of workers, the bytes of formats, and what cannot be exported."""

import errno
import os
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow.parquet as pq
import pytest

import farspan
from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.manifest_file import read_manifest
from objectives.api.mask_set import MaskSet
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.export.formats import FORMATS
from pipelines.export.items import Frame, Parts, check_fit
from pipelines.export.job import plan
from pipelines.export.options import Export, FormatName
from pipelines.inspect.verify import verify
from tests.artefacts import all_rows, edit_sealed, make_corpus, make_documents, make_pairs


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("artefacts")
    documents = make_documents(str(root / "documents"))
    corpus = make_corpus(str(root / "corpus"), shards=3, documents=60)
    farspan.mask("span", corpus=corpus, output=root / "masks", preset="bart_ls_mixed", workers=1)
    make_pairs(str(root / "pairs"), documents)
    return root


def export(artefact, to, output, engine=Engine(workers=1), **options):  # noqa: B008 (frozen)
    return run_job(plan(Export(artefact=str(artefact), to=to, output=str(output), **options)), engine)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("artefact", ["documents", "corpus"])
def test_an_export_is_sound_and_its_bytes_do_not_depend_on_the_workers(folders, tmp_path, to, artefact):
    manifest = export(folders / artefact, to, tmp_path / "one")
    export(folders / artefact, to, tmp_path / "two", Engine(workers=2))
    export(folders / artefact, to, tmp_path / "three", Engine(engine="cooperative"))
    assert contents(tmp_path / "one") == contents(tmp_path / "two") == contents(tmp_path / "three")
    assert verify(tmp_path / "one") == []
    assert read_manifest(str(tmp_path / "one")) == manifest
    assert not (tmp_path / "one" / "manifest.json").exists()
    rows = manifest.totals["rows"]
    assert rows == {"documents": 96, "corpus": read_manifest(str(folders / "corpus")).totals["sequences"]}[artefact]
    listed = {name for name in contents(tmp_path / "one") if name.name not in (".farspan.json", ".origins.json")}
    assert {str(name) for name in listed} == {*manifest.files, "README.md"}
    damaged = next(path for path in sorted((tmp_path / "one").glob("part-*")))
    damaged.write_bytes(damaged.read_bytes() + b"x")
    assert len(verify(tmp_path / "one")) == 1


def test_from_python(folders, tmp_path):
    manifest = farspan.export(folders / "corpus", to="megatron", output=tmp_path / "out", workers=1)
    assert manifest.format == "farspan.export"
    assert "IndexedDataset" in (tmp_path / "out" / "README.md").read_text()


def test_files_are_as_many_as_asked_for_and_hold_the_same_rows(folders, tmp_path):
    export(folders / "corpus", "olmo", tmp_path / "three")
    export(folders / "corpus", "olmo", tmp_path / "one", files=1)
    three = b"".join(path.read_bytes() for path in sorted((tmp_path / "three").glob("*.npy")))
    assert [path.read_bytes() for path in (tmp_path / "one").glob("*.npy")] == [three]


@pytest.mark.parametrize(
    ("artefact", "to", "options", "message"),
    [
        ("masks", "megatron", {}, "--to megatron: cannot say which ids are targets"),
        ("masks", "mds", {"layout": "seq2seq"}, "--to mds: has no columns for source and target"),
        ("masks", "olmo", {"length": 20}, "--length 20: a row may have 135 ids"),
        ("masks", "olmo", {"bos": True}, "--bos, --bos-id, --eos-id: a mask set"),
        ("masks", "olmo", {"unit": "documents"}, "--unit documents: the rows of a mask set"),
        ("documents", "olmo", {"unit": "rows"}, r"--unit rows: .* make a corpus"),
        ("corpus", "olmo", {"layout": "stream"}, "--layout stream: is for mask sets"),
        ("corpus", "olmo", {"length": 64}, "--length 64: a row may have 126 ids"),
        ("corpus", "olmo", {"bos": True}, "larger --room-per-document"),
        ("corpus", "datatrove", {"eos_id": 70_000, "dtype": "uint16"}, "cannot hold a vocabulary of 70,001 ids"),
        ("corpus", "olmo", {"dtype": "int32"}, "--dtype int32: files of olmo have uint8 or uint16 or uint32"),
        ("pairs", "olmo", {}, "is 'farspan.pairs'; give documents, a corpus or a mask set"),
    ],
)
def test_what_cannot_be_exported_is_refused_before_work(folders, tmp_path, artefact, to, options, message):
    with pytest.raises(FarspanError, match=message) as caught:
        export(folders / artefact, to, tmp_path / "out", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_an_export_over_one_of_another_corpus_is_refused_and_nothing_is_lost(folders, tmp_path):
    export(folders / "corpus", "olmo", tmp_path / "out")
    before = contents(tmp_path / "out")
    other = make_corpus(str(tmp_path / "other"), seed=1)
    with pytest.raises(FarspanError, match="parent was "):
        export(other, "olmo", tmp_path / "out")
    with pytest.raises(FarspanError, match=r"config\.to was 'olmo', is 'mds'"):
        export(folders / "corpus", "mds", tmp_path / "out")
    assert contents(tmp_path / "out") == before


def test_a_tokenizer_without_the_end_or_padding_is_refused_with_the_cure(tmp_path):
    corpus = make_corpus(str(tmp_path / "corpus"))
    for role, cure in (("<pad>", "--pad-id ID, or --unit documents"), ("<eos>", "--eos-id ID")):
        with edit_sealed(Path(corpus) / "manifest.json") as manifest:
            del manifest["tokenizer"]["owned_tokens"][role]
        with pytest.raises(FarspanError, match=f"has no {role}, which files of megatron need; give {cure}"):
            export(corpus, "megatron", tmp_path / "out")
    job = plan(Export(artefact=corpus, to="megatron", output=str(tmp_path / "out"), eos_id=3, pad_id=3))
    assert job.head.config["eos_id"] == 3


def test_a_full_disk_is_one_line_and_the_command_resumes(folders, tmp_path, monkeypatch):

    create = files.create

    def full(path):
        if path.endswith("part-00001-of-00003.idx"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return create(path)

    with monkeypatch.context() as patch:
        patch.setattr(files, "create", full)
        with pytest.raises(FarspanError, match=r"[Nn]o space.*run the same command again"):
            export(folders / "corpus", "megatron", tmp_path / "out")
    export(folders / "corpus", "megatron", tmp_path / "out")
    export(folders / "corpus", "megatron", tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_an_id_never_wraps():
    ids = np.array([1, 70_000], np.int32)
    with pytest.raises(FarspanError, match="id 70,000 does not fit uint16"):
        check_fit(ids, "uint16")
    check_fit(ids, "uint32")
    parts = Parts(ids, np.array([0]), np.array([2]), np.array([True]), np.array([0, 1]))
    with pytest.raises(FarspanError, match="id 70,000"):
        Frame(dtype="uint16", eos=2).lay_out(parts)
    assert Frame(dtype="int32", eos=2).lay_out(parts).tokens.values.tolist() == [1, 70_000, 2]


# The files of formats whose readers cannot be installed, and Parquet as ``datasets`` reads it.
EOS = 2


def lists(folder, column):
    return [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path)[column].to_pylist()]


def test_every_format_has_a_name():
    assert set(get_args(FormatName)) == set(FORMATS)


def test_fairseq_has_lengths_and_offsets_after_its_header(folders, tmp_path):
    farspan.export(folders / "corpus", to="fairseq", output=tmp_path / "out", unit="documents", files=1, workers=1)
    (index,), (data,) = ((path.read_bytes() for path in (tmp_path / "out").glob(f"*.{end}")) for end in ("idx", "bin"))
    magic, version, code, count = index[:9], index[9:17], index[17], int.from_bytes(index[18:26], "little")
    assert (magic, version, code) == (b"MMIDIDX\0\0", (1).to_bytes(8, "little"), 8)
    lengths = np.frombuffer(index, "<i4", count, 26)
    offsets = np.frombuffer(index, "<i8", count, 26 + 4 * count)
    assert len(index) == 26 + 12 * count
    items = [np.frombuffer(data, "<u2", n, at).tolist() for n, at in zip(lengths, offsets, strict=True)]
    expected = []
    for row in all_rows(folders / "corpus", "farspan.corpus"):
        edges = [*row["document_starts"], len(row["tokens"])]
        expected += [[*row["tokens"][a:b], EOS] for a, b in pairwise(edges)]
    assert items == expected


def test_datasets_read_rows_with_the_lengths_of_documents(folders, tmp_path):
    datasets = pytest.importorskip("datasets")
    farspan.export(folders / "corpus", to="parquet", output=tmp_path / "out", workers=1)
    rows = datasets.load_dataset(str(tmp_path / "out"), split="train", cache_dir=str(tmp_path / "cache"))
    stored = all_rows(folders / "corpus", "farspan.corpus")
    assert len(rows) == len(stored)
    for row, source in zip(rows, stored, strict=True):
        ends = np.cumsum(row["seq_lengths"])
        assert ends[-1] == len(row["input_ids"])
        parts = np.split(row["input_ids"], ends[:-1])
        edges = [*source["document_starts"], len(source["tokens"])]
        for number, part in enumerate(parts):
            text = source["tokens"][edges[number] : edges[number + 1]]
            assert part.tolist() in ([*text, EOS], text)
            if part.tolist() == text:  # cut by the end of the row
                assert number + 1 == len(parts)
                assert source["document_offsets"][number] + len(text) < source["document_lengths"][number]


def test_source_and_target_are_those_of_training(folders, tmp_path):
    farspan.export(folders / "masks", to="parquet", output=tmp_path / "out", workers=1)
    corpus, masks = farspan.open_corpus(folders / "corpus"), MaskSet(str(folders / "masks"))
    numbers = np.arange(len(corpus))
    examples = masks.objective.render(corpus.take(numbers), masks.take(numbers), masks.special_tokens)
    sources, targets = (lists(tmp_path / "out", name) for name in ("input_ids", "labels"))
    assert len(sources) == len(numbers)
    for row in numbers:
        assert sources[row] == examples.source_ids[row, : examples.source_lengths[row]].tolist()
        assert targets[row] == examples.target_ids[row, : examples.target_lengths[row]].tolist()


def test_bridge_looks_up_losses_by_the_position_that_predicts(folders, tmp_path):
    farspan.export(folders / "masks", to="megatron-bridge", output=tmp_path / "bridge", workers=1)
    farspan.export(folders / "masks", to="parquet", layout="stream", output=tmp_path / "plain", workers=1)
    ids, labels = (lists(tmp_path / "plain", name) for name in ("input_ids", "labels"))
    assert lists(tmp_path / "bridge", "input_ids") == ids
    for row, losses in zip(labels, lists(tmp_path / "bridge", "loss_mask"), strict=True):
        assert losses == [*(int(label >= 0) for label in row[1:]), 0]
    assert lists(tmp_path / "bridge", "seq_start_id") == [[0]] * len(ids)


def test_bridge_predicts_nothing_across_documents(folders, tmp_path):
    farspan.export(folders / "corpus", to="megatron-bridge", output=tmp_path / "out", workers=1)
    columns = (lists(tmp_path / "out", name) for name in ("input_ids", "loss_mask", "seq_start_id"))
    for ids, losses, starts in zip(*columns, strict=True):
        last = {*(start - 1 for start in starts[1:]), len(ids) - 1}
        assert losses == [int(place not in last) for place in range(len(ids))]
