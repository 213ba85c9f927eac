"""``farspan corpus linked``: related documents in one sequence, running the earlier stages if necessary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from corpora.errors import FarspanError
from pipelines.commands.command import Typed, job, start
from pipelines.flags import add_flags, make


def _declare(parser: Any) -> None:
    from pipelines.corpus.options import LinkedCorpus
    from pipelines.retrieval.options import Clustering, Embed, NeighbourSearch

    add_flags(parser, LinkedCorpus, without=["neighbours"])
    earlier = parser.add_argument_group("earlier stages", "see farspan embed, cluster and neighbours")
    earlier.add_argument("--neighbours", metavar="DIR", help="made by `farspan neighbours`; computed if not given")
    earlier.add_argument("--stages", metavar="DIR", help="folder for their output (default: OUTPUT.stages)")
    names = [
        "stages",
        *add_flags(earlier, Embed),
        *add_flags(earlier, Clustering, without=["vectors"]),
        *add_flags(earlier, NeighbourSearch, without=["clusters"]),
    ]
    parser.set_defaults(unused_with_neighbours={name: parser.get_default(name) for name in names})


def _run(typed: Typed) -> None:
    from pipelines.corpus import linked
    from pipelines.corpus.options import LinkedCorpus
    from pipelines.engine.artefacts import absolute
    from pipelines.engine.beginning import check_output

    changed = [name for name, value in typed.unused_with_neighbours.items() if getattr(typed, name) != value]
    if typed.neighbours and changed:
        flag = changed[0].replace("_", "-")
        raise FarspanError(f"--{flag}: has no effect with --neighbours; give one of the two")
    folder = typed.stages or typed.output.rstrip("/") + ".stages"
    corpus = make(LinkedCorpus, typed, neighbours=typed.neighbours or f"{folder}/neighbours")
    check_output(absolute(typed.output))
    if not typed.neighbours:
        _run_earlier_stages(typed, folder)
    start(typed, linked.plan(corpus))


def _run_earlier_stages(typed: Typed, folder: str) -> None:
    """Compute vectors, clusters and neighbours, after checking the options of all three."""
    from pipelines.retrieval import cluster, embed, neighbours
    from pipelines.retrieval.options import Clustering, Embed, NeighbourSearch

    vectors, clusters, found = (f"{folder}/{name}" for name in ("vectors", "clusters", "neighbours"))
    embedding = make(Embed, typed, output=vectors)
    clustering = make(Clustering, typed, vectors=vectors, output=clusters)
    search = make(NeighbourSearch, typed, clusters=clusters, output=found)
    job = embed.plan(embedding)
    cluster.first_level(clustering, embed.most_documents(embedding))
    start(typed, job, vectors)
    start(typed, cluster.plan(clustering), clusters)
    start(typed, neighbours.plan(search), found)


LINKED = replace(
    job(
        "corpus linked",
        "Put related documents into one sequence.",
        "pipelines.corpus.options:LinkedCorpus",
        _run,
        """\
all stages in one command, kept in corpus.stages/ for the next corpus:
  farspan corpus linked --documents documents --sequence-length 16384 --output corpus
another policy from the same neighbours:
  farspan corpus linked --documents documents --neighbours corpus.stages/neighbours \\
    --policy path --sequence-length 16384 --output corpus-path""",
    ),
    options=(),
    declare=_declare,
)
