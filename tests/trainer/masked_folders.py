"""Folders and runs with masked language models, for tests."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from corpora.schemas.corpus import Corpus
from corpora.schemas.sequences import corpus_schema
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import manifest_sha256, write_manifest, write_origins
from corpora.storage.shards import shard_name, write_shard
from objectives.api.examples import IGNORED
from objectives.api.masks import MASK_SCHEMA
from objectives.api.protocol import CorpusFacts, draw_key, load_objective, mask_key
from objectives.api.special_tokens import MASK, SpecialTokens
from tests.factories import OWNED, VOCAB, make_sequences
from tests.trainer.toy import ToySource, toy_recipe
from trainer.data.config import DataConfig, ObjectiveConfig
from trainer.data.curriculum import Stage
from trainer.model.config import EncoderConfig
from trainer.model.patterns.full import Full
from trainer.model.positions import Learned
from trainer.scorer.scorers import load_scorer

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
    (stage,) = toy_recipe("unused", steps=10 * len(datas), batch_size=4).curriculum
    return [replace(stage, data=data, last_step=10 * (number + 1)) for number, data in enumerate(datas)]


def scorer_of(path, **options):
    load_scorer.cache_clear()
    return load_scorer(str(path), **{"device": "cpu", **options})


def masked_rows(special: SpecialTokens, lengths, vocab, seed=0, share=0.3):
    """Rows of ``lengths`` random tokens between the begin and end in ``special``: ids, lengths, labels."""
    rng = np.random.default_rng(seed)
    begin, end = ([special.ids[name]] if name in special.ids else [] for name in ("<bos>", "<eos>"))
    sizes = np.array(lengths, np.int32) + len(begin) + len(end)
    ids = np.full((len(sizes), sizes.max(initial=0)), special["<pad>"], np.int32)
    labels = np.full_like(ids, IGNORED)
    for row, length in enumerate(lengths):
        text = rng.integers(5, vocab, length)
        hidden = rng.random(length) < share
        inside = slice(len(begin), len(begin) + length)
        labels[row, inside] = np.where(hidden, text, IGNORED)
        ids[row, : sizes[row]] = [*begin, *np.where(hidden, special[MASK], text), *end]
    return ids, sizes, labels


def plain_losses(logits, special, room, ids, lengths, labels):
    """One unpadded window at a time: ``logits`` of ``(1, n)`` ids is ``(1, n, V)``; all in float64 behind it."""
    losses = np.zeros(ids.shape)
    begin, end = ([special.ids[name]] if name in special.ids else [] for name in ("<bos>", "<eos>"))
    for row, length in enumerate(lengths):
        places = np.arange(len(begin), length - len(end))
        for window in (places[i : i + room] for i in range(0, len(places), room)):
            shown = torch.tensor([[*begin, *ids[row, window], *end]])
            with torch.no_grad():
                scores = logits(shown)[0, len(begin) :].double()
            for i, place in enumerate(window):
                if labels[row, place] != IGNORED:
                    losses[row, place] = torch.logsumexp(scores[i], 0) - scores[i, labels[row, place]]
    return losses


class MaskedSource(ToySource):
    """Every third token of a toy sequence is asked for; framed by begin and end, or not."""

    def __init__(self, framed=True, **options):
        super().__init__(encoder_only=True, **options)
        self.special = SpecialTokens.append(24, {"<pad>": 0, "<bos>": 1, "<eos>": 2}, [MASK])
        self.framed = framed

    def examples(self, indices, epochs=None):
        plain = super().examples(indices)
        ids, labels = plain.source_ids.copy(), np.full_like(plain.source_ids, IGNORED)
        labels[:, 2::3] = ids[:, 2::3]
        ids[:, 2::3] = self.special[MASK]
        if self.framed:
            rows = np.arange(len(ids))
            for place, token in ((0, 1), (plain.source_lengths - 1, 2)):
                ids[rows, place], labels[rows, place] = token, IGNORED
        real = plain.source_mask
        return replace(plain, source_ids=np.where(real, ids, 0), labels=np.where(real, labels, IGNORED))


def encoder_recipe(directory, **run):
    recipe = toy_recipe(directory, **run)
    encoder = EncoderConfig(layers=2, positions=Learned(24), attention=Full())
    return replace(
        recipe,
        model=replace(recipe.model, decoder=None, encoder=encoder),
        schedule=replace(recipe.schedule, warmup_steps=1),
        run=replace(recipe.run, steps=2),
    )
