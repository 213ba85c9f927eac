"""Sequences: the group ``farspan corpus``, and ``farspan corpus random``."""

from __future__ import annotations

from typing import Any

from pipelines.commands.clusters import add_clusters
from pipelines.commands.linked import add_linked
from pipelines.commands.long import add_long
from pipelines.commands.shared import command, documents_flag, job_flags, sequence_flags, split_flag, start


def add_corpus(commands: Any) -> None:
    group = commands.add_parser("corpus", help="build sequences from documents")
    kinds = group.add_subparsers(required=True, metavar="KIND")
    _random(kinds)
    add_linked(kinds)
    add_long(kinds)
    add_clusters(kinds)


def _random(kinds: Any) -> None:
    parser = command(kinds, "random", "Shuffle documents globally and concatenate them.", _run_random)
    documents_flag(parser)
    sequence_flags(parser)
    split_flag(parser)
    parser.add_argument("--whole-documents", action="store_true", help="never split a document")
    parser.add_argument("--drop-ragged-tail", action="store_true", help="leave out a shard's last, unfilled sequence")
    parser.add_argument("--min-document-tokens", type=int, default=1, help="leave out shorter documents")
    job_flags(parser)


def _run_random(options: Any) -> None:
    from corpora.packing.options import Packing
    from pipelines.corpus import random

    packing = Packing(
        sequence_length=options.sequence_length,
        room_per_sequence=options.room_per_sequence,
        room_per_document=options.room_per_document,
        split_documents=not options.whole_documents,
        drop_ragged_tail=options.drop_ragged_tail,
        min_document_tokens=options.min_document_tokens,
    )
    job = random.plan(
        random.RandomCorpus(
            documents=options.documents,
            output=options.output,
            packing=packing,
            seed=options.seed,
            split=options.split,
            shards=options.shards,
            compression=options.compression,
        )
    )
    start(options, job)
