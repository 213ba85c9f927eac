"""The stages of linked corpora, each alone: ``farspan embed``, ``cluster``, ``neighbours``."""

from __future__ import annotations

from typing import Any

from pipelines.commands.shared import command, documents_flag, job_flags, split_flag, start

THREADS = "threads of a worker; they decide last bits, and so belong to the configuration (default 1)"


def add_stages(commands: Any) -> None:
    parser = command(
        commands,
        "embed",
        "Turn documents into vectors, for `farspan cluster`.",
        _run_embed,
        "example:\n  farspan embed --documents documents --encoder facebook/contriever --output vectors",
    )
    documents_flag(parser)
    embed_flags(parser)
    parser.add_argument("--threads", type=int, default=1, help=THREADS)
    job_flags(parser, seed=False)

    parser = command(
        commands,
        "cluster",
        "Divide vectors into clusters, in which `farspan neighbours` searches.",
        _run_cluster,
        "example:\n  farspan cluster --vectors vectors --output clusters",
    )
    parser.add_argument("--vectors", required=True, metavar="DIR", help="folder made by `farspan embed`")
    cluster_flags(parser)
    parser.add_argument("--threads", type=int, default=1, help=THREADS)
    job_flags(parser)

    parser = command(
        commands,
        "neighbours",
        "Find each document's nearest neighbours in its cluster, for `farspan corpus linked`.",
        _run_neighbours,
        "example:\n  farspan neighbours --clusters clusters --k 100 --output neighbours",
    )
    parser.add_argument("--clusters", required=True, metavar="DIR", help="folder made by `farspan cluster`")
    neighbour_flags(parser)
    parser.add_argument("--threads", type=int, default=1, help=THREADS)
    job_flags(parser)


def embed_flags(parser: Any) -> list[str]:
    """Add the flags of the first stage; their names."""
    return _added(
        parser,
        parser.add_argument(
            "--encoder",
            default="facebook/contriever",
            metavar="MODEL",
            help="folder or hub name of a BERT-like encoder (default facebook/contriever)",
        ),
        parser.add_argument(
            "--pooling", choices=["mean", "cls"], default="mean", help="of token states (default: masked mean)"
        ),
        parser.add_argument("--normalize", action="store_true", help="scale vectors to length 1 (Contriever has none)"),
        parser.add_argument(
            "--max-length",
            type=int,
            default=512,
            help="positions the encoder sees, or as many as it has (default 512)",
        ),
        parser.add_argument(
            "--precision",
            choices=["auto", "float32", "float16", "bfloat16", "int8"],
            default="auto",
            help="auto: float16 on a GPU, else float32; bfloat16 is several times faster on processors with AMX; int8: "
            "linear layers, on the processor",
        ),
        parser.add_argument(
            "--long-documents",
            choices=["principal", "first"],
            default="principal",
            help="what is embedded of a document beyond --max-length: its principal sentences (default), or its begin",
        ),
        split_flag(parser),
        parser.add_argument(
            "--min-document-tokens", type=int, default=1, help="shorter documents get no vector (default 1)"
        ),
        parser.add_argument(
            "--block",
            type=int,
            default=4096,
            help="documents a task and shard, rounded up to multiples of 1,024 (default 4096)",
        ),
    )


def cluster_flags(parser: Any) -> list[str]:
    """Add the flags of the second stage; their names."""
    return _added(
        parser,
        parser.add_argument(
            "--centroids",
            type=int,
            default=0,
            help="first-level clusters (default: 256, or fewer so that each has 20,000 documents)",
        ),
        parser.add_argument("--euclidean", action="store_true", help="compare distances instead of directions"),
        parser.add_argument("--iterations", type=int, default=20, help="of k-means (default 20)"),
        parser.add_argument(
            "--sample", type=int, default=1_000_000, help="most vectors that k-means learns from (default 1,000,000)"
        ),
        parser.add_argument(
            "--max-documents", type=int, default=1_500_000, help="larger clusters are split again (default 1,500,000)"
        ),
    )


def neighbour_flags(parser: Any) -> list[str]:
    """Add the flags of the third stage; their names."""
    return _added(
        parser,
        parser.add_argument("--k", type=int, default=100, help="neighbours of a document (default 100)"),
        parser.add_argument(
            "--exact-up-to",
            type=int,
            default=20_000,
            help="clusters up to this size are searched exactly (default 20,000)",
        ),
        parser.add_argument(
            "--probes", type=int, default=32, help="lists a document visits in larger ones (default 32)"
        ),
        parser.add_argument(
            "--memory", type=float, default=8.0, help="GiB a worker may take; more is refused beforehand (default 8)"
        ),
    )


def _added(parser: Any, *actions: Any) -> list[str]:
    return [action.dest for action in actions]


def embedding(options: Any, output: str) -> Any:
    """What the flags say, all of it checked that can be before the documents are known."""
    from pipelines.retrieval.options import Embed, EncoderOptions

    encoder = EncoderOptions(
        name=options.encoder,
        pooling=options.pooling,
        normalize=options.normalize,
        max_length=options.max_length,
        precision=options.precision,
        threads=options.threads,
    )
    return Embed(
        documents=options.documents,
        output=output,
        encoder=encoder,
        long_documents=options.long_documents,
        split=options.split,
        min_document_tokens=options.min_document_tokens,
        block=options.block,
        compression=options.compression,
    )


def clustering(options: Any, vectors: str, output: str) -> Any:
    """What the flags say, checked but for the number of vectors."""
    from pipelines.retrieval.options import Clustering

    return Clustering(
        vectors=vectors,
        output=output,
        centroids=options.centroids,
        spherical=not options.euclidean,
        iterations=options.iterations,
        sample=options.sample,
        max_documents=options.max_documents,
        threads=options.threads,
        seed=options.seed,
        compression=options.compression,
    )


def neighbour_search(options: Any, clusters: str, output: str) -> Any:
    """What the flags say, checked but for the memory that the largest cluster needs."""
    from corpora.retrieval.options import Search
    from pipelines.retrieval.options import NeighbourSearch

    search = Search(k=options.k, exact_up_to=options.exact_up_to, probes=options.probes, seed=options.seed)
    return NeighbourSearch(
        clusters=clusters,
        output=output,
        search=search,
        memory=options.memory,
        threads=options.threads,
        compression=options.compression,
    )


def _run_embed(options: Any) -> None:
    from pipelines.retrieval import embed

    start(options, embed.plan(embedding(options, options.output)))


def _run_cluster(options: Any) -> None:
    from pipelines.retrieval import cluster

    start(options, cluster.plan(clustering(options, options.vectors, options.output)))


def _run_neighbours(options: Any) -> None:
    from pipelines.retrieval import neighbours

    start(options, neighbours.plan(neighbour_search(options, options.clusters, options.output)))
