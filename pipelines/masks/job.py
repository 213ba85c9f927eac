"""``farspan mask OBJECTIVE``: store the masks of an objective for each row of a corpus."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from corpora.errors import FarspanError
from corpora.options import record_options
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.manifest import Receipt
from corpora.storage.shards import MOST_SHARDS, StoredShard, write_shard
from objectives.api.masks import TOTALS, add_mask_totals, mask_schema
from objectives.api.plugins import plugin_errors
from objectives.api.protocol import CorpusFacts, Objective, Tools, draw_key, equip, load_objective, mask_key
from pipelines.engine.artefacts import Parent, absolute, artefact_tokenizer, declare_derived_job
from pipelines.engine.job import Job, Report, Task, make_sharded_stage, shard_paths
from pipelines.masks.options import Masking

# an objective with a model is about this many times slower than one without
_MODEL_COST = 100


def equip_objective(
    corpus: str, name: str, preset: str | None, options: Mapping[str, Any], scorer: str | None = None
) -> Objective:
    """Load an objective with the tools that it needs to mask ``corpus``; models are loaded once per process."""
    objective = load_objective(name, preset, options)
    if hasattr(objective, "with_tools"):
        model = None
        if scorer is not None:
            from trainer.scorer.scorers import load_scorer  # brings torch, which no other objective needs

            # one thread: the order of float additions must not depend on the number of cores
            model = load_scorer(scorer, threads=1)
        objective = equip(objective, Tools(artefact_tokenizer(corpus), model))
    if scorer is not None and "scorer" not in getattr(objective, "tools", {}):
        raise FarspanError(f"--scorer {scorer}: objective {name} uses no model; leave the flag out")
    return objective


def plan(options: Masking) -> Job:
    """Check the objective against the corpus and declare one task per shard and draw."""
    output, corpus = absolute(options.output), Parent.read(options.corpus, "farspan.corpus")
    scorer = absolute(options.scorer) if options.scorer and os.path.exists(options.scorer) else options.scorer
    objective = equip_objective(corpus.folder, options.objective, options.preset, options.options, scorer)
    special = objective.validate(CorpusFacts.of(corpus.manifest))
    shards, rows_per_batch = corpus.shards, corpus.manifest.rows_per_batch
    if options.draws < 1 or len(shards) * options.draws > MOST_SHARDS:
        most = MOST_SHARDS // max(len(shards), 1)
        raise FarspanError(f"--draws {options.draws}: give 1 to {most:,}, as the corpus has {len(shards)} shards")
    objective_options, tools = dict(objective.options), dict(getattr(objective, "tools", {}))
    config = {
        **record_options(options, options=objective_options),
        "global_attention": objective.global_attention,
        "tools": tools,
    }
    drawn = list(product(range(options.draws), shards))
    began = replace(options, corpus=corpus.folder, preset=None, options=objective_options, scorer=scorer)
    stage = make_sharded_stage(
        "mask",
        partial(_mask_shard, began, tools, rows_per_batch),
        "sequences",
        [shard.rows for _, shard in drawn],
        corpus=[shard for _, shard in drawn],
        shard=shard_paths(output, len(drawn)),
        draw=[draw for draw, _ in drawn],
    )
    return declare_derived_job(
        output,
        corpus,
        [stage],
        format="farspan.masks",
        config=config,
        seed=options.seed,
        work_bytes=corpus.bytes * options.draws * (_MODEL_COST if tools.keys() & {"scorer", "recognizer"} else 1),
        special_tokens=dict(special.ids),
    )


@plugin_errors()
def _mask_shard(options: Masking, tools: Mapping[str, str], rows_per_batch: int, task: Task, report: Report) -> Receipt:
    """Mask one corpus shard, record batch by record batch; a worker with other ``tools`` is refused."""
    objective = equip_objective(options.corpus, options.objective, None, options.options, options.scorer)
    here = dict(getattr(objective, "tools", {}))
    if here != tools:
        raise FarspanError(
            f"objective {options.objective}: this worker has {here}, the job began with {tools}; install the "
            "same versions everywhere, and if --scorer is a run that still trains, give one of its checkpoints"
        )
    key = draw_key(mask_key(options.seed, objective), task.payload["draw"])
    source: StoredShard = task.payload["corpus"]
    totals = dict.fromkeys(TOTALS, 0)
    with write_shard(task.payload["shard"], mask_schema(objective), rows_per_batch, options.compression) as (
        writer,
        info,
    ):
        for record_batch in source.batches():
            batch = SequenceBatch.from_arrow(record_batch)
            masks = objective.mask(batch, key)
            if not np.array_equal(masks.sequence_ids, batch.sequence_ids):
                raise FarspanError(
                    f"objective {options.objective} returned masks for other sequences than it was given"
                )
            writer.write(masks.to_arrow())
            add_mask_totals(totals, masks)
            report(totals["sequences"])
    return Receipt(task.name, tuple(info), totals)
