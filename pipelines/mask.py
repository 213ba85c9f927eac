"""``farspan mask OBJECTIVE``: what an objective hides in each row of a corpus, shard by shard."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from corpora.errors import FarspanError
from corpora.manifest import Manifest, Receipt, read_manifest
from corpora.sequences import SequenceBatch
from corpora.shards import read_shard, write_shard
from objectives.base import CorpusFacts, load_objective, mask_key
from objectives.masks import MASK_SCHEMA
from pipelines.artefacts import absolute, copy_tokenizer, parent_entry, tokenizer_folder
from pipelines.beam_files import files_for
from pipelines.job import Job, Report, Stage, Task


@dataclass(frozen=True)
class Masking:
    """Options of the job.

    Attributes:
        corpus: folder of a ``farspan.corpus`` artefact.
        output: folder of the mask set.
        objective: entry-point name.
        preset: one of the objective's presets, or None.
        options: override the preset's.
        seed: of the draws.
        compression: None, ``lz4`` or ``zstd``.
    """

    corpus: str
    output: str
    objective: str
    preset: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    compression: str | None = None


def plan(options: Masking) -> Job:
    """Check the objective against the corpus and lay out one task a shard.

    Raises:
        FarspanError: no finished corpus, or an objective that cannot work on it.
    """
    corpus, output = absolute(options.corpus), absolute(options.output)
    parent = read_manifest(files_for(corpus), corpus, "farspan.corpus")
    objective = load_objective(options.objective, options.preset, options.options)
    special = objective.validate(CorpusFacts.of(parent))
    head = Manifest(
        format="farspan.masks",
        config={
            "objective": options.objective,
            "options": dict(objective.options),
            "global_attention": objective.global_attention,
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
                "corpus": os.path.join(corpus, "shards", shard.name),
                "shard": os.path.join(output, "shards", shard.name),
            },
            shard.rows,
        )
        for index, shard in enumerate(parent.shards)
    ]
    work = MaskShard(
        options.objective, dict(objective.options), options.seed, parent.rows_per_batch, options.compression
    )
    size = sum(shard.bytes for shard in parent.shards)
    copy = partial(copy_tokenizer, tokenizer_folder(corpus))
    return Job(output, head, [Stage("mask", tasks, work, "sequences")], copy, size)


@dataclass(frozen=True)
class MaskShard:
    """Mask one corpus shard, record batch by record batch."""

    objective: str
    options: Mapping[str, Any]
    seed: int
    rows_per_batch: int
    compression: str | None

    def __call__(self, task: Task, report: Report) -> Receipt:
        objective = load_objective(self.objective, options=self.options)
        key = mask_key(self.seed, objective)
        source, target = task.payload["corpus"], task.payload["shard"]
        totals = dict.fromkeys(("sequences", "spans", "hidden_tokens", "max_source_length", "max_target_length"), 0)
        with write_shard(files_for(target), target, MASK_SCHEMA, self.rows_per_batch, self.compression) as (
            writer,
            info,
        ):
            for record_batch in read_shard(files_for(source), source):
                batch = SequenceBatch.from_arrow(record_batch)
                masks = objective.mask(batch, key)
                if not (masks.sequence_ids == batch.sequence_ids).all():
                    raise FarspanError(
                        f"objective {self.objective} returned masks for other sequences than it was given"
                    )
                writer.write(masks.to_arrow())
                totals["sequences"] += len(masks)
                totals["spans"] += len(masks.span_starts.values)
                totals["hidden_tokens"] += int(masks.span_lengths.values.sum())
                totals["max_source_length"] = max(totals["max_source_length"], int(masks.source_lengths.max(initial=0)))
                totals["max_target_length"] = max(totals["max_target_length"], int(masks.target_lengths.max(initial=0)))
                report(totals["sequences"])
        return Receipt(task.name, tuple(info), totals)
