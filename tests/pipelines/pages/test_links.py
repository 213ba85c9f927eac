"""Links of rows: similarities as the neighbours list them, and near-duplicates as the corpus does."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from corpora.linking.near_duplicates import NEAR_DUPLICATES
from corpora.linking.options import Linking
from corpora.packing.options import Packing
from corpora.schemas.corpus import Corpus
from corpora.storage.manifest_file import list_files
from corpora.storage.origins import NAME
from corpora.storage.shards import write_shard
from pipelines.corpus.linked import plan
from pipelines.corpus.options import LinkedCorpus
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.pages.corpus_rows import CorpusRows
from pipelines.pages.links import Links
from pipelines.pages.page import PageOptions
from pipelines.pages.row import cluster_of, parts_of
from tests.artefacts import all_rows, make_documents
from tests.neighbours import make_neighbours


@pytest.fixture(scope="module")
def linked(tmp_path_factory):
    """A linked corpus, and its neighbours."""
    root = tmp_path_factory.mktemp("linked")
    documents = make_documents(str(root / "documents"), shards=1, documents=60)
    neighbours = make_neighbours(str(root / "neighbours"), documents)
    options = LinkedCorpus(
        documents=documents,
        neighbours=neighbours,
        output=str(root / "corpus"),
        packing=Packing(sequence_length=256),
        linking=Linking(policy="nearest"),
        shards=1,
    )
    run_job(plan(options), Engine(workers=1))
    return str(root / "corpus"), neighbours


def listed(neighbours: str) -> dict[tuple[str, str], float]:
    """(document, neighbour) -> similarity, read in the plainest way."""
    rows = all_rows(neighbours, "farspan.neighbours")
    found, first = {}, 0
    for number, row in enumerate(rows):
        if number and row["cluster_id"] >> 20 != rows[number - 1]["cluster_id"] >> 20:
            first = number
        for other, similarity in zip(row["neighbours"], row["similarities"], strict=True):
            found[row["document_id"], rows[first + other]["document_id"]] = float(similarity)
    return found


def test_similarities_are_those_of_the_neighbours(linked):
    folder, neighbours = linked
    corpus, known = Corpus(folder), listed(neighbours)
    links, compared = Links(folder, corpus.manifest), 0
    assert links.missing == ""
    for row in range(len(corpus)):
        batch = corpus.take(np.array([row]))
        parts, cluster = parts_of(batch), cluster_of(batch)
        found = links.of(parts, cluster)
        assert len(found) == len(parts)
        for before, part, link in zip(parts, parts[1:], found[1:], strict=False):
            pair = before.document_id, part.document_id
            expected = known.get(pair, known.get(pair[::-1])) if cluster is not None else None
            assert link.similarity == expected
            assert link.cosine == expected  # norms are 1
            compared += expected is not None
    assert compared > 0


def test_near_duplicates_are_those_of_the_lists(linked, tmp_path):
    """Each pair is said of both; a row of no cluster looks into every list."""
    folder = str(tmp_path / "corpus")
    shutil.copytree(linked[0], folder)
    corpus = Corpus(folder)
    batch = corpus.take(np.array([0]))
    parts, cluster = parts_of(batch), cluster_of(batch)
    one, other = parts[0].document_id, parts[1].document_id
    lists = {cluster >> 20: [(one, "made:far", 0.5)], 7: [("made:other", other, None)]}
    for shard, pairs in lists.items():
        columns = [*zip(*pairs, strict=True), [0.9] * len(pairs)]
        with write_shard(f"{folder}/near-duplicates/link-{shard:05d}.arrow", NEAR_DUPLICATES, 1024) as (writer, _):
            writer.write(pa.record_batch([list(column) for column in columns], schema=NEAR_DUPLICATES))
    manifest = replace(corpus.manifest, files=list_files(folder))
    links = Links(folder, manifest, linked[1])
    assert [link.near_duplicates for link in links.of(parts, cluster)][:2] == [(("made:far", 0.5),), ()]
    assert [link.near_duplicates for link in links.of(parts, None)][:2] == [
        (("made:far", 0.5),),
        (("made:other", None),),
    ]


def test_without_neighbours_the_page_says_so(linked, tmp_path):
    folder, neighbours = linked
    alone = str(tmp_path / "alone")
    shutil.copytree(folder, alone, ignore=shutil.ignore_patterns(NAME))
    corpus = Corpus(alone)
    links = Links(alone, corpus.manifest)
    assert "give it: --neighbours DIR" in links.missing
    page = CorpusRows("alone", corpus, links=links).page(0, PageOptions())
    assert page.missing == (links.missing,)
    assert Links(alone, corpus.manifest, neighbours).missing == ""
    with pytest.raises(FarspanError, match=r"manifest\.json|is 'farspan\.corpus' where"):
        Links(alone, corpus.manifest, folder)
