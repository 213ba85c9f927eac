"""Every job that reads an artefact: it is killed in each stage and ends with the same bytes, and it finds damage."""

import importlib
import os
import pkgutil
import shutil
from pathlib import Path

import pytest

import pipelines
from corpora.errors import FarspanError
from corpora.storage.manifest_file import NAME
from corpora.storage.shards import map_shard
from pipelines.corpus import linked, long, related
from pipelines.corpus import random as random_corpus
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.export import job as export
from pipelines.masks import job as masks
from pipelines.retrieval import cluster, embed, neighbours
from pipelines.retrieval.options import Clustering
from tests.artefacts import make_corpus, make_documents
from tests.killing import run_killed
from tests.neighbours import make_neighbours
from tests.pipelines.engine.jobs import contents
from tests.pipelines.integration.job_table import JOBS, planned
from tests.tiny_encoder import make_encoder
from tests.vectors import make_vectors


def flip(path: str) -> None:
    """Change one bit of a value, which no reader of Arrow can notice."""
    whole, reader = map_shard(path)
    batch = reader.get_batch(reader.num_record_batches - 1)
    name = next(name for name in ("vector", "similarities", "tokens", "query") if name in batch.schema.names)
    place = batch.column(name).values.buffers()[1].address - whole.address
    del whole, reader, batch
    data = bytearray(Path(path).read_bytes())
    data[place] ^= 1
    Path(path).write_bytes(data)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    at = str(tmp_path_factory.mktemp("sound"))
    make_documents(f"{at}/documents", clusters=6)
    make_corpus(f"{at}/corpus")
    make_vectors(f"{at}/vectors", f"{at}/documents")
    make_neighbours(f"{at}/neighbours", f"{at}/documents")
    make_encoder(f"{at}/encoder")
    run_job(cluster.plan(Clustering(vectors=f"{at}/vectors", output=f"{at}/clusters")), Engine(workers=1))
    return at


@pytest.fixture
def at(sound, tmp_path):
    return shutil.copytree(sound, str(tmp_path / "at"))


def test_no_job_is_forgotten():
    names = {module.name for module in pkgutil.walk_packages(pipelines.__path__, "pipelines.") if not module.ispkg}
    modules = map(importlib.import_module, names - {"pipelines.__main__"})
    planning = {found.__module__ for module in modules if (found := getattr(module, "plan", None))}
    tested = {
        module.__name__ for module in (random_corpus, long, linked, related, masks, embed, cluster, neighbours, export)
    }
    beside = {"pipelines.pairs.job", "pipelines.generate"}  # tested beside their own tests
    assert planning - {"pipelines.documents.job"} == tested | beside  # documents reads raw text
    assert len({name.split()[0] for name in JOBS}) == len(tested)


@pytest.mark.parametrize(
    "job", [pytest.param(job, marks=[] if job == "linked from neighbours" else pytest.mark.slow) for job in JOBS]
)
def test_a_job_killed_in_each_stage_is_finished_by_two_workers_with_the_same_bytes(sound, tmp_path, job):
    whole, killed = str(tmp_path / "whole"), str(tmp_path / "killed")
    run_job(planned(job, sound, whole), Engine(workers=1))
    for stage in planned(job, sound, killed).stages:
        run_killed(planned.__module__, "planned", stage.name, job, sound, killed)
        assert not os.path.exists(f"{killed}/{NAME}")
    run_job(planned(job, sound, killed), Engine(workers=2))
    assert contents(killed) == contents(whole)


@pytest.mark.parametrize("job", JOBS)
def test_a_flipped_bit_in_a_parents_shard_stops_the_job(at, tmp_path, job):
    plan, parent = JOBS[job]
    folder = f"{at}/{parent}/shards"
    path = f"{folder}/{sorted(os.listdir(folder))[-1]}"
    flip(path)
    output = str(tmp_path / "output")
    with pytest.raises(FarspanError, match=rf"{path}: not a readable shard \(sha256 \w+ where the manifest says \w+\)"):
        run_job(plan(at, output), Engine(workers=1))
    assert not os.path.exists(os.path.join(output, NAME))


@pytest.mark.parametrize("job", ["random_corpus", "mask", "embed", "cluster", "neighbours"])
@pytest.mark.parametrize("damage", ["flipped", "missing", "one too many"])
def test_a_parents_tokenizer_is_the_one_that_it_was_made_with(at, tmp_path, job, damage):
    plan, parent = JOBS[job]
    path = Path(at) / parent / "tokenizer" / "tokenizer.json"
    ready = plan(at, str(tmp_path / "output"))
    if damage == "flipped":
        path.write_bytes(path.read_bytes().replace(b"ByteLevel", b"ByteLevel ", 1))
    elif damage == "missing":
        path.unlink()
    else:
        path = path.with_name("tokenizer_config.json")
        path.write_text("{}")
    with pytest.raises(FarspanError, match=rf"{path}: not as the manifest says; copy the artefact again"):
        run_job(ready, Engine(workers=1))
    assert not (tmp_path / "output" / NAME).exists()
