"""``farspan mask OBJECTIVE``: what an objective hides in each row of a corpus, shard by shard."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from corpora.errors import FarspanError
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.manifest import Manifest, Receipt, read_manifest
from corpora.storage.shards import MOST_SHARDS, shard_name, write_shard
from corpora.storage.stored_shards import StoredShard, stored_shards
from objectives.api.mask_totals import TOTALS, add_mask_totals
from objectives.api.masks import MASK_SCHEMA
from objectives.api.protocol import CorpusFacts, Objective, draw_key, equip, load_objective, mask_key
from objectives.api.tools import Tools
from pipelines.engine.artefacts import absolute, artefact_tokenizer, inherit_tokenizer, parent_entry
from pipelines.engine.job import Job, Report, Stage, Task
from pipelines.mask_options import Masking

# A model reads a megabyte in the time in which other objectives read a hundred.
_MODEL_COST = 100


def equipped_objective(
    corpus: str, name: str, preset: str | None, options: Mapping[str, Any], scorer: str | None = None
) -> Objective:
    """An objective with the tools it needs to mask ``corpus``; tokenizer and models are loaded once a process.

    Raises:
        FarspanError: no such objective, preset, option or scorer, or a scorer that the objective has no use for.
    """
    objective = load_objective(name, preset, options)
    if hasattr(objective, "with_tools"):
        model = None
        if scorer is not None:
            from trainer.scorer.scorers import load_scorer  # brings torch, which no other objective needs

            # One thread a process: the order of float additions must not depend on the machine's cores.
            model = load_scorer(scorer, threads=1)
        objective = equip(objective, Tools(artefact_tokenizer(corpus), model))
    if scorer is not None and "scorer" not in getattr(objective, "tools", {}):
        raise FarspanError(f"--scorer {scorer}: objective {name} asks no model; leave the flag out")
    return objective


def plan(options: Masking) -> Job:
    """Check the objective against the corpus and lay out one task for each shard and draw.

    Raises:
        FarspanError: no finished corpus, an objective that cannot work on it, or no draws.
    """
    corpus, output = absolute(options.corpus), absolute(options.output)
    scorer = options.scorer
    if scorer is not None and os.path.exists(scorer):
        scorer = absolute(scorer)
    parent = read_manifest(corpus, "farspan.corpus")
    objective = equipped_objective(corpus, options.objective, options.preset, options.options, scorer)
    special = objective.validate(CorpusFacts.of(parent))
    count = len(parent.shards) * options.draws
    if options.draws < 1 or count > MOST_SHARDS:
        most = MOST_SHARDS // max(len(parent.shards), 1)
        raise FarspanError(
            f"--draws {options.draws}: give 1 to {most:,}, as the corpus has {len(parent.shards)} shards"
        )
    tools = dict(getattr(objective, "tools", {}))
    head = Manifest(
        format="farspan.masks",
        config={
            "objective": options.objective,
            "options": dict(objective.options),
            "global_attention": objective.global_attention,
            "tools": tools,
            "draws": options.draws,
            "compression": options.compression,
        },
        seed=options.seed,
        rows_per_batch=parent.rows_per_batch,
        tokenizer=parent.tokenizer,
        special_tokens=dict(special.ids),
        parent=parent_entry(output, corpus),
    )
    tasks = [
        Task(
            f"mask-{index:05d}",
            {
                "corpus": shard,
                "shard": os.path.join(output, "shards", shard_name(index, count)),
                "draw": draw,
            },
            shard.rows,
        )
        for index, (draw, shard) in enumerate(product(range(options.draws), stored_shards(corpus, parent)))
    ]
    work = MaskShard(
        corpus,
        options.objective,
        dict(objective.options),
        tools,
        scorer,
        options.seed,
        parent.rows_per_batch,
        options.compression,
    )
    size = sum(shard.bytes for shard in parent.shards) * options.draws
    if tools.keys() & {"scorer", "recognizer"}:
        size *= _MODEL_COST
    copy = partial(inherit_tokenizer, corpus, parent)
    return Job(output, head, [Stage("mask", tasks, work, "sequences")], copy, size)


@dataclass(frozen=True)
class MaskShard:
    """Mask one corpus shard, record batch by record batch.

    Attributes:
        tools: that the manifest names; a worker with others would mix their masks with these.
    """

    corpus: str
    objective: str
    options: Mapping[str, Any]
    tools: Mapping[str, str]
    scorer: str | None
    seed: int
    rows_per_batch: int
    compression: str | None

    def __call__(self, task: Task, report: Report) -> Receipt:
        objective = equipped_objective(self.corpus, self.objective, None, self.options, self.scorer)
        tools = dict(getattr(objective, "tools", {}))
        if tools != self.tools:
            raise FarspanError(
                f"objective {self.objective}: this worker has {tools}, the job began with {self.tools}; install the "
                "same versions everywhere, and name a checkpoint as --scorer where its run still trains"
            )
        key = draw_key(mask_key(self.seed, objective), task.payload["draw"])
        source: StoredShard = task.payload["corpus"]
        target = task.payload["shard"]
        totals = dict.fromkeys(TOTALS, 0)
        with write_shard(target, MASK_SCHEMA, self.rows_per_batch, self.compression) as (
            writer,
            info,
        ):
            for record_batch in source.batches():
                batch = SequenceBatch.from_arrow(record_batch)
                masks = objective.mask(batch, key)
                if not np.array_equal(masks.sequence_ids, batch.sequence_ids):
                    raise FarspanError(
                        f"objective {self.objective} returned masks for other sequences than it was given"
                    )
                writer.write(masks.to_arrow())
                add_mask_totals(totals, masks)
                report(totals["sequences"])
        return Receipt(task.name, tuple(info), totals)
