"""``farspan generate``: store the texts that a model generates for the pairs of a split.

A shard holds the predictions of a fixed range of pairs and is one task, so a stopped job repeats at most the shards in
work, and any number of processes write the same bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from corpora.errors import FarspanError, mark_raised_alike, out_of_memory
from corpora.options import record_options
from corpora.reporting import Reporting, reporting, result
from corpora.schemas.pairs import PairSet
from corpora.schemas.predictions import PREDICTION_TOTALS, TEXTS, add_prediction_totals, predictions_schema
from corpora.storage.files import write_bytes
from corpora.storage.manifest import Manifest, Receipt
from corpora.storage.ragged import Ragged
from corpora.storage.shards import MOST_SHARDS, map_shard, write_shard
from objectives.tasks.protocol import split_groups
from pipelines.cards.card import summary
from pipelines.engine.artefacts import Parent, absolute, declare_derived_job
from pipelines.engine.job import Job, Report, Stage, Task, make_sharded_stage, shard_paths
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.options import Generating
from trainer.model.seq2seq import Seq2Seq
from trainer.parallel.distributed import World, explain_lost_processes, is_first, on_every_rank
from trainer.prediction.predictor import Predictor
from trainer.prediction.setup import OpenedModel, check_prompts, choose_config, choose_task, make_predictor, open_model
from trainer.scorer.inference import pin_threads

_ROWS_PER_BATCH = 64


def command(options: Generating) -> None:
    """Run ``farspan generate``; the first process prints the summary."""
    manifest = generate(options)
    if is_first():
        result(f"{options.output}: {summary(manifest)}", output=options.output, totals=dict(manifest.totals))


def generate(options: Generating, world: World | None = None) -> Manifest:
    """Generate, or resume; all processes of a ``torchrun`` call this together.

    None reads ``world``, all processes, from the environment.
    """
    with mark_raised_alike():
        opened = open_model(Path(options.model), options.checkpoint)
    joined = world or World.from_environment(options.device)
    with explain_lost_processes(joined), pin_threads(options.threads):
        dtype = torch.float32 if options.precision == "fp32" else torch.bfloat16
        model = cache(partial(opened.build, joined.device, dtype))
        job = on_every_rank(joined, lambda: plan(options, opened, model))
        # The processes of torchrun share the tasks as any others do; one of them shows the progress.
        engine = Engine(engine="cooperative") if joined.size > 1 else Engine(workers=1)
        with mark_raised_alike(), nullcontext() if joined.first else reporting(Reporting(quiet=True)):
            manifest = run_job(job, engine)
        if world is None:
            joined.close()
    return manifest


def plan(options: Generating, opened: OpenedModel, model: Callable[[], Seq2Seq]) -> Job:
    """Check model, pairs, task and options against each other, and declare one task per shard.

    ``model`` loads the model onto its device once work starts.
    """
    output, parent = absolute(options.output), Parent.read(options.pairs, "farspan.pairs")
    pairs = PairSet(parent.folder, options.documents, verify=True)
    rows = pairs.rows_of(options.split)
    task = choose_task(opened, options.task, options.preset, options.options)
    config = choose_config(opened, options.generation)
    predictor = make_predictor(opened, pairs, task, config, options.batch_positions)
    check_prompts(predictor, pairs, rows, opened.decoder_positions)
    parts = split_groups(rows, predictor.group(pairs, rows), options.shard_rows)
    if len(parts) > MOST_SHARDS:
        raise FarspanError(
            f"--shard-rows {options.shard_rows}: makes {len(parts):,} shards of the {len(rows):,} pairs, more than "
            f"{MOST_SHARDS:,}; give a larger number"
        )
    paths = shard_paths(output, len(parts))
    work = GenerateShard(pairs, predictor, model, predictions_schema(opened.model.vocabulary.size), options.compression)
    texts = Task("texts", {}, len(parts))
    return declare_derived_job(
        output,
        parent,
        [
            make_sharded_stage("generate", work, "pairs", list(map(len, parts)), rows=parts, shard=paths),
            Stage("texts", [texts], partial(write_texts, output, paths), "shards"),
        ],
        format="farspan.predictions",
        config=record_options(
            options,
            model=dict(opened.entry),
            task={"name": predictor.task.name, "options": dict(predictor.task.options)},
            generation=asdict(config),
        ),
        seed=config.seed,
        rows_per_batch=_ROWS_PER_BATCH,
    )


@dataclass(frozen=True)
class GenerateShard:
    """Generates the texts of one shard's pairs; ``model`` returns the model on its device."""

    pairs: PairSet
    predictor: Predictor
    model: Callable[[], Seq2Seq]
    schema: pa.Schema
    compression: str | None

    def __call__(self, task: Task, report: Report) -> Receipt:
        batch = self.pairs.take(task.payload["rows"])
        try:
            predictions = self.predictor(self.model(), batch, report)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            raise FarspanError(
                f"out of memory with --batch-positions {self.predictor.batch_positions}; finished shards are kept: run "
                "the same command with a smaller number"
            ) from error
        written = pa.record_batch(
            [
                pa.array(batch.pair_ids, pa.string()),
                pa.array(predictions.texts, pa.string()),
                Ragged.from_rows(predictions.tokens, np.int32).to_arrow(self.schema.field("tokens").type),
                pa.array(predictions.scores),
            ],
            schema=self.schema,
        )
        totals = dict.fromkeys(PREDICTION_TOTALS, 0)
        add_prediction_totals(totals, written)
        with write_shard(task.payload["shard"], self.schema, _ROWS_PER_BATCH, self.compression) as (writer, info):
            writer.write(written)
        return Receipt(task.name, tuple(info), totals)


def write_texts(output: str, shards: Sequence[str], task: Task, report: Report) -> Receipt:
    """Write the texts of all shards by pair id, as one JSON object."""
    texts: dict[str, str] = {}
    for shard in shards:
        table = map_shard(shard)[1].read_all()
        texts |= zip(table.column("pair_id").to_pylist(), table.column("text").to_pylist(), strict=True)
    write_bytes(os.path.join(output, TEXTS), (json.dumps(texts, indent=0, ensure_ascii=False) + "\n").encode())
    return Receipt(task.name)
