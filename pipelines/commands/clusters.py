"""Sequences of related documents: ``farspan corpus clusters``."""

from __future__ import annotations

from typing import Any

from pipelines.commands.shared import command, documents_flag, job_flags, sequence_flags, split_flag, start


def add_clusters(kinds: Any) -> None:
    parser = command(
        kinds,
        "clusters",
        "One row for each cluster of related documents, in whole sentences.",
        _run_clusters,
        """\
clusters that the input brings:
  farspan documents --input news='multi-news/*.jsonl' --format multi-news --tokenizer t5.model --output documents
  farspan corpus clusters --documents documents --sequence-length 4096 --output corpus
seeds with their nearest neighbours, of any documents:
  farspan corpus clusters --documents documents --neighbours corpus.stages/neighbours \\
    --max-documents 6 --sequence-length 4096 --output corpus""",
    )
    documents_flag(parser)
    parser.add_argument(
        "--neighbours", metavar="DIR", help="made by `farspan neighbours` (default: clusters of the documents)"
    )
    sequence_flags(parser)
    parser.add_argument(
        "--budget",
        choices=["shared", "equal"],
        default="shared",
        help="what short documents leave goes to longer ones (default), or each document has the same",
    )
    parser.add_argument(
        "--order",
        choices=["shuffle", "given"],
        default="shuffle",
        help="of documents in a row (default: keyed shuffle)",
    )
    parser.add_argument("--min-documents", type=int, default=2, help="rows with fewer are left out (default 2)")
    parser.add_argument(
        "--max-documents", type=int, default=0, help="larger clusters become several rows (default: 128 positions each)"
    )
    parser.add_argument("--min-similarity", type=float, help="of a neighbour to its seed (default: none)")
    parser.add_argument(
        "--max-jaccard",
        type=float,
        default=0.8,
        help="neighbours with more word 5-grams of the seed are not taken (default .8)",
    )
    split_flag(parser, None, "default: train, or that of the neighbours")
    job_flags(parser)


def _run_clusters(options: Any) -> None:
    from corpora.packing.options import ClusterRows, Packing
    from pipelines.corpus import related

    packing = Packing(
        sequence_length=options.sequence_length,
        room_per_sequence=options.room_per_sequence,
        room_per_document=options.room_per_document,
    )
    rows = ClusterRows(
        budget=options.budget,
        order=options.order,
        min_documents=options.min_documents,
        max_documents=options.max_documents,
    )
    job = related.plan(
        related.ClusterCorpus(
            documents=options.documents,
            output=options.output,
            packing=packing,
            rows=rows,
            neighbours=options.neighbours,
            min_similarity=options.min_similarity,
            max_jaccard=options.max_jaccard,
            seed=options.seed,
            split=options.split,
            shards=options.shards,
            compression=options.compression,
        )
    )
    start(options, job)
