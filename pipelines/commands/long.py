"""Sequences of long documents: ``farspan corpus long``."""

from __future__ import annotations

from typing import Any

from pipelines.commands.shared import command, job_flags, split_flag, start


def add_long(kinds: Any) -> None:
    parser = command(
        kinds,
        "long",
        "Mix sources of long documents by weight, as a recipe says.",
        _run_long,
        "example (the file explains every key):\n  farspan corpus long examples/long_mixture.toml --output corpus",
    )
    parser.add_argument("recipe", metavar="RECIPE.toml", help="sources, weights, budget, sequence length")
    split_flag(parser)
    parser.add_argument("--shards", type=int, default=0, help="default: one for each 16 million tokens")
    job_flags(parser)


def _run_long(options: Any) -> None:
    from pipelines.corpus import long

    corpus = long.LongCorpus(
        recipe=options.recipe,
        output=options.output,
        seed=options.seed,
        split=options.split,
        shards=options.shards,
        compression=options.compression,
    )
    documents = long.plan_documents(corpus)
    if documents:
        start(options, documents, documents.output)
    start(options, long.plan(corpus))
