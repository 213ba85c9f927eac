"""``farspan export``: the same bytes for any number of workers and after a kill, and messages for what cannot be."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

import farspan
from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.manifest_file import read_manifest
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.export.format import Frame, Parts, check_fit
from pipelines.export.formats import FORMATS
from pipelines.export.job import plan
from pipelines.inspect.verify import verify
from pipelines.options import Export
from tests.artefacts import edit_sealed, make_corpus, make_documents, make_pairs


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


FORMAT_OF = {"documents": "megatron", "corpus": "mds"}


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("artefact", FORMAT_OF)
def test_an_export_is_sound_and_its_bytes_do_not_depend_on_the_workers(folders, tmp_path, to, artefact):
    manifest = export(folders / artefact, to, tmp_path / "one")
    export(folders / artefact, to, tmp_path / "two", Engine(engine="cooperative"))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    if to == FORMAT_OF[artefact]:  # starting a worker takes a second; no format knows of workers
        export(folders / artefact, to, tmp_path / "three", Engine(workers=2))
        assert contents(tmp_path / "one") == contents(tmp_path / "three")
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
