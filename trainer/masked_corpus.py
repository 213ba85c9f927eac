"""The usual source of examples: a corpus, and masks of it that are read or drawn."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import numpy as np

from corpora.corpus import Corpus
from corpora.errors import FarspanError
from corpora.manifest import Manifest
from corpora.sequences import SequenceBatch
from corpora.tokenizers import load_tokenizer
from objectives.base import CorpusFacts, Objective, equip, load_objective, mask_key
from objectives.examples import Examples
from objectives.mask_set import MaskSet
from objectives.masks import MaskBatch
from objectives.special_tokens import SpecialTokens
from objectives.tools import Tools
from trainer.data import DataConfig, ObjectiveConfig


class MaskedCorpus:
    """Renders (corpus row, mask row) when a batch is made.

    Attributes:
        fingerprint: sha256 of what determines the examples.
        special: the special tokens that rendering emits.
        tokenizer_fingerprint: of the corpus's tokenizer.
    """

    def __init__(
        self,
        corpus: Corpus,
        objective: Objective,
        special: SpecialTokens,
        masks: Callable[[SequenceBatch, np.ndarray], MaskBatch],
        masks_identity: Any,
        segment_ids: bool = False,
    ) -> None:
        self._corpus, self._objective, self._masks = corpus, objective, masks
        if segment_ids and "segment_ids" not in inspect.signature(objective.render).parameters:
            raise FarspanError(
                f"data.across_documents is false, but objective {objective.name} does not say which document a "
                "position belongs to: its render takes no segment_ids; set data.across_documents to true"
            )
        self._rendering: dict[str, Any] = {"segment_ids": True} if segment_ids else {}
        self.special = special
        self.tokenizer_fingerprint: str = corpus.manifest.tokenizer["fingerprint"]
        shards = [shard.sha256 for shard in corpus.manifest.shards]
        tools = dict(getattr(objective, "tools", {}))
        facts = [shards, objective.name, dict(objective.options), dict(special.ids), tools, masks_identity]
        facts += [self._rendering] if self._rendering else []
        self.fingerprint = sha256(json.dumps(facts).encode()).hexdigest()

    @classmethod
    def stored(cls, corpus: Corpus, masks: MaskSet, *, segment_ids: bool = False) -> MaskedCorpus:
        """Read the masks from a mask set.

        Raises:
            FarspanError: masks of another corpus, or an objective that cannot number documents where it should.
        """
        masks.check_parent(corpus)
        identity = [shard.sha256 for shard in masks.manifest.shards]
        return cls(corpus, masks.objective, masks.special_tokens, masks.masks, identity, segment_ids)

    @classmethod
    def drawn(cls, corpus: Corpus, objective: Objective, seed: int, *, segment_ids: bool = False) -> MaskedCorpus:
        """Draw the masks that a mask set made with ``seed`` would hold.

        Raises:
            FarspanError: an objective that cannot work on this corpus, or cannot number documents where it should.
        """
        key = mask_key(seed, objective)
        special = objective.validate(CorpusFacts.of(corpus.manifest))
        identity = {"seed": seed}
        return cls(corpus, objective, special, lambda batch, _: objective.mask(batch, key), identity, segment_ids)

    def __len__(self) -> int:
        return len(self._corpus)

    def examples(self, indices: np.ndarray) -> Examples:
        """Render the rows at ``(n,)`` int64 ``indices``, in that order."""
        batch = self._corpus.take(indices)
        return self._objective.render(batch, self._masks(batch, indices), self.special, **self._rendering)


def open_source(data: DataConfig, seed: int) -> MaskedCorpus:
    """Open what a data section names.

    Raises:
        FarspanError: no corpus, neither or both of masks and objective, masks of another corpus, targets longer than
            ``data.target_length``.
    """
    if not data.corpus:
        raise FarspanError("data.corpus is not set; name the folder of a corpus: --set data.corpus=FOLDER")
    if (data.masks is None) == (data.objective is None):
        raise FarspanError(
            f"data.masks is {data.masks!r} and data.objective is {data.objective and data.objective.name!r}; "
            "set one of them: a mask set to read, or an objective to draw masks on the fly"
        )
    if data.masks is None and data.masks_options:
        raise FarspanError(
            f"data.masks_options is {dict(data.masks_options)!r}, but data.masks names no mask set; give them as "
            "data.objective.options"
        )
    corpus = Corpus(data.corpus)
    if data.masks is not None:
        masks = MaskSet(data.masks, data.masks_options)
        if not masks.adjusted:  # else the lengths of no row are known before it is read
            _check_lengths(masks.manifest, data)
        return MaskedCorpus.stored(corpus, masks, segment_ids=not data.across_documents)
    assert data.objective is not None
    objective = _equipped(data.objective, corpus)
    return MaskedCorpus.drawn(corpus, objective, seed, segment_ids=not data.across_documents)


def _equipped(config: ObjectiveConfig, corpus: Corpus) -> Objective:
    """The objective with the tools it needs to mask ``corpus``."""
    objective = load_objective(config.name, config.preset, config.options)
    if hasattr(objective, "with_tools"):
        from trainer.scoring import load_scorer

        scorer = load_scorer(config.scorer) if config.scorer else None
        objective = equip(objective, Tools(load_tokenizer(os.path.join(corpus.folder, "tokenizer")), scorer))
    if config.scorer and "scorer" not in getattr(objective, "tools", {}):
        raise FarspanError(
            f"data.objective.scorer is {config.scorer!r}, but objective {config.name} asks no model; leave it out"
        )
    return objective


def _check_lengths(masks: Manifest, data: DataConfig) -> None:
    """Say before the first step what would stop the run at a later one."""
    for side in ("source", "target"):
        longest, limit = masks.totals.get(f"max_{side}_length", 0), getattr(data, f"{side}_length")
        if longest > limit:
            raise FarspanError(
                f"{data.masks}: its longest {side} has {longest} positions, data.{side}_length is {limit}; raise it "
                "(and the model's positions), or make the mask set with shorter limits"
            )
