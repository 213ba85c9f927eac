"""Manifests, receipts, records of runs and tokenizers changed at random: one line each, and never a traceback.

What is no longer sound is refused by whatever opens it. What stays readable gives every row without a crash.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from corpora.corpus import Corpus
from corpora.errors import FarspanError
from corpora.files import LocalFiles
from corpora.manifest import read_manifest
from corpora.shards import ShardedRows
from corpora.tokenizers import load_tokenizer
from objectives.mask_set import MaskSet
from pipelines import cluster, mask, neighbours, random_concat
from pipelines.engine import Engine
from pipelines.job import finalize, run_job
from pipelines.stats import statistics, summary
from pipelines.verify import verify_artefact
from tests.artefacts import make_corpus, make_documents
from tests.fuzzing import damaged
from tests.neighbours import make_neighbours
from tests.pipelines.test_job import finished
from tests.vectors import make_vectors
from trainer.checkpoint_files import DamagedError, find_fault
from trainer.checkpoint_files import read_manifest as read_checkpoint
from trainer.claim import read_record
from trainer.conversion.model_folder import read_model_folder, write_model_folder
from trainer.trained_model import find_trained

FAST, SLOW = 25, 1000  # changes of each file


def _open_documents(folder: str) -> None:
    verify_artefact(folder)
    random_concat.plan(random_concat.RandomCorpus(folder, f"{folder}.corpus", random_concat.Packing(64)))
    statistics(folder, [])
    summary(read_manifest(LocalFiles(), folder))


def _open_corpus(folder: str) -> None:
    verify_artefact(folder)
    mask.plan(mask.Masking(folder, f"{folder}.masks", "span"))
    statistics(folder, [])
    corpus = Corpus(folder, verify=True)
    corpus.check_files()
    if len(corpus):
        corpus.take(np.unique(np.array([0, len(corpus) // 2, len(corpus) - 1])))


def _open_masks(folder: str) -> None:
    verify_artefact(folder)
    masks = MaskSet(folder, verify=True)
    masks.check_files()
    corpus = Corpus(masks.parent_folder)
    masks.check_parent(corpus)
    rows = np.arange(min(len(corpus), 4))
    if len(rows):
        masks.objective.render(corpus.take(rows), masks.masks(corpus.take(rows), rows), masks.special_tokens)


def _open_vectors(folder: str) -> None:
    verify_artefact(folder)
    cluster.plan(cluster.Clustering(folder, f"{folder}.clusters"))


def _open_clusters(folder: str) -> None:
    verify_artefact(folder)
    neighbours.plan(neighbours.NeighbourSearch(folder, f"{folder}.neighbours"))


def _open_neighbours(folder: str) -> None:
    verify_artefact(folder)
    list(ShardedRows(folder, "farspan.neighbours", verify=True).batches())


def _open_checkpoint(folder: str) -> None:
    try:
        find_fault(Path(folder))
        read_checkpoint(Path(folder))
    except DamagedError:
        return
    find_trained(Path(folder)).weights()


# what is damaged -> what reads it, or fails in one line
OPENERS: dict[str, Callable[[str], object]] = {
    "documents/manifest.json": _open_documents,
    "corpus/manifest.json": _open_corpus,
    "masks/manifest.json": _open_masks,
    "vectors/manifest.json": _open_vectors,
    "clusters/manifest.json": _open_clusters,
    "neighbours/manifest.json": _open_neighbours,
    "job/_work/job.json": finalize,
    "job/_work/one.json": finalize,
    "run/run.json": lambda folder: read_record(Path(folder)),
    "run/step-00000007/checkpoint.json": _open_checkpoint,
    "model/manifest.json": lambda folder: read_model_folder(Path(folder)),
    "tokenizer/tokenizer.json": load_tokenizer,
    "tokenizer/special_tokens_map.json": load_tokenizer,
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    at = tmp_path_factory.mktemp("sound")
    make_documents(f"{at}/documents", shards=2)
    make_corpus(f"{at}/corpus")
    run_job(mask.plan(mask.Masking(f"{at}/corpus", f"{at}/masks", "span")), Engine(workers=1))
    make_vectors(f"{at}/vectors", f"{at}/documents")
    run_job(cluster.plan(cluster.Clustering(f"{at}/vectors", f"{at}/clusters")), Engine(workers=1))
    make_neighbours(f"{at}/neighbours", f"{at}/documents")
    finished(at / "job")
    shutil.copytree(at / "corpus" / "tokenizer", at / "tokenizer")
    _make_run(at)
    return at


def _make_run(at: Path) -> None:
    from tests.trainer.conversion.models import tiny_model
    from trainer.checkpoint_files import file_facts

    model = tiny_model()
    write_model_folder(model, at / "model")
    (at / "run").mkdir()
    (at / "run" / "run.json").write_text('{"start": 3, "process": 12, "host": "here"}')
    step = at / "run" / "step-00000007"
    (step / "model").mkdir(parents=True)
    (step / "optimizer").mkdir()
    shutil.copy(at / "model" / "model.safetensors", step / "model" / "model.safetensors")
    manifest = json.loads((at / "model" / "manifest.json").read_text())
    special = manifest["vocabulary"]["special_tokens"]
    vocabulary = {"tokenizer_fingerprint": "f", "special_tokens": special, "frame": ["<eos>"], "size": 40}
    checkpoint = {
        "format": "farspan.checkpoint",
        "format_version": 2,
        "step": 7,
        "samples": 70,
        "identity": {"model": manifest["config"], "data": {"decoder_start": "<eos>"}},
        "vocabulary": vocabulary,
        "files": {"model/model.safetensors": file_facts(step / "model" / "model.safetensors")},
    }
    (step / "checkpoint.json").write_text(json.dumps(checkpoint))


@pytest.mark.parametrize("count", [FAST, pytest.param(SLOW, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", OPENERS)
def test_every_change_is_harmless_or_refused_in_one_line(sound, tmp_path, name, count, record_property):
    at = Path(shutil.copytree(sound, tmp_path / "at"))
    path = at / name
    folder = str(path.parent.parent if path.parent.name == "_work" else path.parent)
    data = path.read_bytes()
    kept = {file: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}
    told: list[tuple[int, str]] = []
    for seed in range(count):
        path.write_bytes(damaged(data, seed))
        try:
            OPENERS[name](folder)
        except FarspanError as error:
            told.append((seed, str(error)))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {path.read_bytes()[-300:]!r}") from error
        if name.startswith("job/"):
            for file, content in kept.items():
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(content)
            (at / "job" / "manifest.json").unlink(missing_ok=True)
    assert told or name == "run/run.json"  # of which nothing is believed
    assert [one for one in told if len(one[1].splitlines()) > 1 and "do not fit the configuration" not in one[1]] == []
    record_property("refused", len(told))
