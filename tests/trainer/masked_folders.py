"""A corpus and span masks of it, made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from corpora.schemas.corpus import Corpus
from corpora.schemas.sequences import corpus_schema
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import manifest_sha256, write_manifest
from corpora.storage.origins import write_origins
from corpora.storage.shards import shard_name, write_shard
from objectives.api.masks import MASK_SCHEMA
from objectives.api.protocol import CorpusFacts, draw_key, load_objective, mask_key
from tests.factories import OWNED, VOCAB, make_sequences
from tests.trainer.toy import toy_recipe
from trainer.data.config import DataConfig, ObjectiveConfig
from trainer.data.curriculum import Stage

OPTIONS = {"density": 0.15}
SEED = 3
SPAN = ObjectiveConfig(name="span", options=OPTIONS, seed=SEED)


def write_artefact(folder: Path, manifest: Manifest, schema, batches) -> None:
    shards = []
    for number, batch in enumerate(batches):
        path = folder / "shards" / shard_name(number, len(batches))
        with write_shard(str(path), schema, manifest.rows_per_batch) as (writer, info):
            writer.write(batch)
        shards += info
    write_manifest(str(folder), replace(manifest, shards=tuple(shards)))


def make_folders(tmp_path: Path, draws: int = 1, shards: int = 2, seed: int = 0) -> tuple[str, str]:
    """A corpus of shards with 5 and 4 rows by turns, and span masks of it."""
    blocks = [make_sequences([40, 60, 33, 80, 50][: 5 - n % 2], 3, seed=seed + n) for n in range(shards)]
    facts = dict.fromkeys(("sequences", "tokens", "documents", "parts", "padding"), 0)
    facts |= {"max_tokens": 80, "max_documents": 3}
    config = {"builder": "random", "sequence_length": 96, "room_per_sequence": 2, "room_per_document": 1}
    corpus, masks = tmp_path / "corpus", tmp_path / "masks"
    manifest = Manifest(
        "farspan.corpus", config, 0, 2,
        {"fingerprint": "f", "vocab_size": VOCAB, "owned_tokens": OWNED}, totals=facts,
    )  # fmt: skip
    schema = corpus_schema(VOCAB)
    write_artefact(corpus, manifest, schema, [block.to_arrow(schema) for block in blocks])
    objective = load_objective("span", options=OPTIONS)
    special = objective.validate(CorpusFacts.of(Corpus(str(corpus)).manifest))
    key = mask_key(SEED, objective)
    drawn = [objective.mask(block, draw_key(key, draw)) for draw in range(draws) for block in blocks]
    mask_manifest = replace(
        manifest,
        format="farspan.masks",
        config={
            "objective": "span",
            "options": dict(objective.options),
            "global_attention": objective.global_attention,
            "tools": {},
            "draws": draws,
        },
        seed=SEED,
        special_tokens=special.ids,
        parent={"manifest_sha256": manifest_sha256(str(corpus))},
        totals={
            "sequences": sum(map(len, blocks)),
            "max_source_length": int(max(part.source_lengths.max() for part in drawn)),
            "max_target_length": int(max(part.target_lengths.max() for part in drawn)),
        },
    )
    write_origins(str(masks), {"parent": "../corpus"})
    write_artefact(masks, mask_manifest, MASK_SCHEMA, [part.to_arrow() for part in drawn])
    return str(corpus), str(masks)


def stages_of(*datas: DataConfig) -> list[Stage]:
    recipe = toy_recipe("unused", steps=10 * len(datas), batch_size=4)
    (stage,) = recipe.curriculum
    return [replace(stage, data=data, last_step=10 * (number + 1)) for number, data in enumerate(datas)]
