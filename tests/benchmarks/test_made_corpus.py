"""A made corpus and its masks are sound artefacts that training can read."""

from __future__ import annotations

import numpy as np

from benchmarks.made_corpus import VOCAB, make_corpus, make_masks
from corpora.schemas.corpus import Corpus
from objectives.api.mask_set import MaskSet
from objectives.api.protocol import load_objective


def test_rows_fill_the_encoder_and_masks_belong_to_them(tmp_path):
    corpus, masks = str(tmp_path / "corpus"), str(tmp_path / "masks")
    make_corpus(corpus, rows=20, length=512, shards=2)
    opened = Corpus(corpus, verify=True)
    assert len(opened) >= 20
    batch = opened.take(np.arange(len(opened)))
    used = batch.tokens.lengths + batch.document_starts.lengths + 2
    assert (used <= 512).all()
    assert np.sort(used)[2:].min() == 512, "all but the last of each shard are full"
    assert batch.tokens.compact().values.max() < VOCAB
    make_masks(masks, corpus, load_objective("span", "bart_ls"))
    stored = MaskSet(masks, verify=True)
    stored.check_parent(opened)
    rows = np.arange(5)
    examples = stored.objective.render(opened.take(rows), stored.masks(opened.take(rows), rows), stored.special_tokens)
    assert (examples.source_lengths <= 512).all()
    assert (examples.target_lengths > 10).all()
