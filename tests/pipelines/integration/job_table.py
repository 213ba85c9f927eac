"""The plan of each job that reads an artefact, without libraries of models, for processes that are killed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from corpora.packing.options import Packing
from pipelines.corpus import linked, long, related
from pipelines.corpus import random as random_corpus
from pipelines.corpus.options import LinkedCorpus, LongCorpus, RandomCorpus, RelatedCorpus
from pipelines.engine.job import Job
from pipelines.export import job as export
from pipelines.masks import job as masks
from pipelines.masks.options import Masking
from pipelines.options import Export
from pipelines.retrieval import cluster, embed, neighbours
from pipelines.retrieval.options import Clustering, Embed, EncoderOptions, NeighbourSearch

PACKING = Packing(sequence_length=128)
RECIPE = """documents = "documents"
sequence_length = 128
tokens = 2000
{windows}
[sources.made]
weight = 1.0
"""


def _long(at: str, output: str, windows: str = "") -> Job:
    recipe = Path(at) / "recipe.toml"
    recipe.write_text(RECIPE.format(windows=windows).replace('"documents"', f'"{at}/documents"'))
    return long.plan(LongCorpus(recipe=str(recipe), output=output))


def _linked(at: str, output: str) -> Job:
    documents, neighbours = f"{at}/documents", f"{at}/neighbours"
    return linked.plan(LinkedCorpus(documents=documents, neighbours=neighbours, output=output, packing=PACKING))


def _related(at: str, output: str, **parents: Any) -> Job:
    return related.plan(RelatedCorpus(documents=f"{at}/documents", output=output, packing=PACKING, **parents))


# job -> how it is planned from the folders in a place, and the folder whose shard is damaged
JOBS: dict[str, tuple[Callable[[str, str], Job], str]] = {
    "random_corpus": (
        lambda at, output: random_corpus.plan(
            RandomCorpus(documents=f"{at}/documents", output=output, packing=PACKING)
        ),
        "documents",
    ),
    "long_documents": (_long, "documents"),
    "long_documents with overlap": (lambda at, output: _long(at, output, "stride = 64"), "documents"),
    "linked from documents": (_linked, "documents"),
    "linked from neighbours": (_linked, "neighbours"),
    "cluster_corpus from documents": (_related, "documents"),
    "cluster_corpus from neighbours": (
        lambda at, output: _related(at, output, neighbours=f"{at}/neighbours"),
        "neighbours",
    ),
    "mask": (
        lambda at, output: masks.plan(Masking(corpus=f"{at}/corpus", output=output, objective="span", draws=2)),
        "corpus",
    ),
    "export": (
        lambda at, output: export.plan(Export(artefact=f"{at}/corpus", to="olmo", output=output, eos_id=1, pad_id=0)),
        "corpus",
    ),
    "embed": (
        lambda at, output: embed.plan(
            Embed(
                documents=f"{at}/documents",
                output=output,
                encoder=EncoderOptions(name=f"{at}/encoder", precision="float32"),
                block=16,
            )
        ),
        "documents",
    ),
    "cluster": (lambda at, output: cluster.plan(Clustering(vectors=f"{at}/vectors", output=output)), "vectors"),
    "neighbours": (
        lambda at, output: neighbours.plan(NeighbourSearch(clusters=f"{at}/clusters", output=output)),
        "clusters",
    ),
}


def planned(job: str, at: str, output: str) -> Job:
    """The job, for a process of its own."""
    return JOBS[job][0](at, output)
