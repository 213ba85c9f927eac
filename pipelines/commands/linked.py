"""Sequences of documents that retrieval found related: ``farspan corpus linked``."""

from __future__ import annotations

from typing import Any

from corpora.errors import FarspanError
from pipelines.commands.shared import command, documents_flag, job_flags, sequence_flags, start
from pipelines.commands.stages import (
    THREADS,
    cluster_flags,
    clustering,
    embed_flags,
    embedding,
    neighbour_flags,
    neighbour_search,
)


def add_linked(kinds: Any) -> None:
    parser = command(
        kinds,
        "linked",
        "Put related documents into one sequence.",
        _run_linked,
        """\
all stages in one command, kept in corpus.stages/ for the next corpus:
  farspan corpus linked --documents documents --sequence-length 16384 --output corpus
another policy from the same neighbours:
  farspan corpus linked --documents documents --neighbours corpus.stages/neighbours \\
    --policy path --sequence-length 16384 --output corpus-path""",
    )
    documents_flag(parser)
    sequence_flags(parser)
    parser.add_argument(
        "--policy",
        choices=["nearest", "chain", "path"],
        default="nearest",
        help="neighbours of a sequence's seed (default); of the last document added; one path through all documents",
    )
    parser.add_argument(
        "--order",
        choices=["seed", "chain", "shuffle"],
        default="seed",
        help="in a sequence: by similarity to the seed (default), as added, or by keyed shuffle",
    )
    parser.add_argument("--max-uses", type=int, default=2, help="sequences that a document may be in (default 2)")
    parser.add_argument(
        "--min-similarity", type=float, help="neighbours of a lower inner product are not taken (default: none)"
    )
    parser.add_argument("--max-cosine", type=float, help="two documents above are kept apart (default: none)")
    parser.add_argument(
        "--max-jaccard",
        type=float,
        default=0.8,
        help="two documents with more word 5-grams in common, too (default .8)",
    )
    parser.add_argument(
        "--min-fill", type=float, default=0.5, help="sequences filled less are taken apart again (default .5)"
    )
    parser.add_argument(
        "--leftovers",
        choices=["concatenate", "leave-out"],
        default="concatenate",
        help="documents in no linked sequence are concatenated at random (default), or left out; near-duplicates of a "
        "document that is used always are",
    )
    job_flags(parser)
    earlier = parser.add_argument_group("earlier stages", "see farspan embed, cluster and neighbours")
    earlier.add_argument("--neighbours", metavar="DIR", help="made by `farspan neighbours`; else made first")
    names = ["stages", "threads"]
    earlier.add_argument("--stages", metavar="DIR", help="folder to make them in (default: OUTPUT.stages)")
    names += embed_flags(earlier) + cluster_flags(earlier) + neighbour_flags(earlier)
    earlier.add_argument("--threads", type=int, default=1, help=THREADS)
    parser.set_defaults(unused_with_neighbours={name: parser.get_default(name) for name in names})


def _run_linked(options: Any) -> None:
    from corpora.linking.options import Linking
    from corpora.packing.options import Packing
    from pipelines.corpus import linked
    from pipelines.engine.artefacts import absolute
    from pipelines.engine.job import check_output

    _refuse_unused(options)
    packing = Packing(
        sequence_length=options.sequence_length,
        room_per_sequence=options.room_per_sequence,
        room_per_document=options.room_per_document,
    )
    linking = Linking(
        policy=options.policy,
        order=options.order,
        max_uses=options.max_uses,
        min_similarity=options.min_similarity,
        max_cosine=options.max_cosine,
        max_jaccard=options.max_jaccard,
        min_fill=options.min_fill,
    )
    folder = options.stages or options.output.rstrip("/") + ".stages"
    corpus = linked.LinkedCorpus(
        documents=options.documents,
        neighbours=options.neighbours or f"{folder}/neighbours",
        output=options.output,
        packing=packing,
        linking=linking,
        leftovers=options.leftovers,
        seed=options.seed,
        shards=options.shards,
        compression=options.compression,
    )
    check_output(absolute(options.output))
    if not options.neighbours:
        _earlier_stages(options, folder)
    start(options, linked.plan(corpus))


def _earlier_stages(options: Any, folder: str) -> None:
    """Run what comes before the neighbours, and they themselves; first the options of all are checked."""
    from pipelines.retrieval import cluster, embed, neighbours

    vectors, clusters, found = (f"{folder}/{name}" for name in ("vectors", "clusters", "neighbours"))
    embed_options = embedding(options, vectors)
    cluster_options = clustering(options, vectors, clusters)
    search_options = neighbour_search(options, clusters, found)
    job = embed.plan(embed_options)
    cluster.first_level(cluster_options, embed.most_documents(embed_options))
    start(options, job, vectors)
    start(options, cluster.plan(cluster_options), clusters)
    start(options, neighbours.plan(search_options), found)


def _refuse_unused(options: Any) -> None:
    changed = [name for name, value in options.unused_with_neighbours.items() if getattr(options, name) != value]
    if options.neighbours and changed:
        raise FarspanError(
            f"--{changed[0].replace('_', '-')}: has no effect with --neighbours; leave out one of the two"
        )
