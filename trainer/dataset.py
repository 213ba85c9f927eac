"""A corpus and its masks as a map-style dataset of PyTorch, with the inputs of transformers' models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.storage.copies.mirror import mirrored
from corpora.tokenizers.load import load_tokenizer_of
from objectives.api.examples import IGNORED, Examples
from objectives.api.mask_set import MaskSet
from objectives.api.protocol import Objective, equip, load_objective
from objectives.api.special_tokens import END, PAD, SpecialTokens
from objectives.api.tools import Tools
from trainer.data.masked_corpus import MaskedCorpus


class Dataset(torch.utils.data.Dataset[dict[str, Tensor]]):
    """A map-style dataset whose item i is sequence i of a corpus, rendered with its masks.

    An item is a dictionary of int64 tensors without padding: ``input_ids`` ``(S,)`` and ``attention_mask`` ``(S,)``,
    the encoder's input; ``labels`` ``(T,)`` and ``decoder_input_ids`` ``(T,)``, the target and the target shifted
    right, or ``labels`` ``(S,)`` alone for an encoder-only objective, -100 where no token is predicted;
    ``global_attention_mask`` ``(S,)`` if the objective has global positions. ``collate`` pads items to a batch.

    Attributes:
        special_tokens: ids of the special tokens that rendering adds to the tokenizer's.
        vocab_size: number of embeddings that a model needs for these examples.
    """

    special_tokens: SpecialTokens
    vocab_size: int

    def __init__(
        self,
        corpus: str | os.PathLike[str],
        masks: str | os.PathLike[str] | None = None,
        *,
        objective: str | Objective | None = None,
        preset: str | None = None,
        options: Mapping[str, Any] | None = None,
        seed: int = 0,
        decoder_start: str = END,
    ) -> None:
        """
        Args:
            corpus: folder made by ``farspan corpus``.
            masks: folder made by ``farspan mask``; None draws masks with ``objective``.
            objective: draws the masks of an item: the name of an installed objective, or an object.
            preset: preset of the named objective.
            options: options of the named objective, which override the preset's; with ``masks``, only adjustable
                options.
            seed: seed of drawn masks; epoch e draws what draw e of ``farspan mask --seed`` would store.
            decoder_start: special token that ``decoder_input_ids`` begins with: ``<eos>`` (BART, LED) or ``<pad>`` (T5,
                PEGASUS).

        Raises:
            FarspanError: no corpus, masks of another corpus, an objective that cannot work on it, or not exactly one of
                ``masks`` and ``objective``.
        """
        self._arguments: dict[str, Any] = {
            **{"corpus": corpus, "masks": masks, "objective": objective, "preset": preset, "options": options},
            **{"seed": seed, "decoder_start": decoder_start},
        }
        self._epoch = torch.zeros(
            (), dtype=torch.int64
        ).share_memory_()  # shared, so that persistent workers see a change
        self._source = _source(os.fspath(corpus), masks, objective, preset, options, seed)
        self.special_tokens = self._source.special
        self.vocab_size = self._source.special.vocab_size
        if decoder_start not in self.special_tokens.ids:
            known = ", ".join(self.special_tokens.ids)
            raise FarspanError(f"decoder_start {decoder_start!r}: not a special token; choose one of {known}")
        self._start = self.special_tokens[decoder_start]

    def __getstate__(self) -> dict[str, Any]:
        return {"arguments": self._arguments, "epoch": self._epoch}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["arguments"])  # type: ignore[misc]
        self._epoch = state["epoch"]

    def set_epoch(self, epoch: int) -> None:
        """Draw the masks of another epoch from now on; a mask set with n draws gives draw e modulo n in epoch e."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Tensor]]:
        """Render the items at ``indices`` in one call; used by ``DataLoader``."""
        rows = np.asarray(indices, np.int64)
        examples = self._source.examples(rows, np.full(len(rows), int(self._epoch), np.int64))
        return [self._item(examples, row) for row in range(len(examples))]

    def _item(self, examples: Examples, row: int) -> dict[str, Tensor]:
        source, target = int(examples.source_lengths[row]), int(examples.target_lengths[row])
        item = {"input_ids": examples.source_ids[row, :source], "attention_mask": np.ones(source, np.int64)}
        if examples.labels is None:
            ids = examples.target_ids[row, :target]
            item |= {"labels": ids, "decoder_input_ids": np.concatenate([[self._start], ids])[:target]}
        else:
            item["labels"] = examples.labels[row, :source]
        if examples.global_positions is not None:
            item["global_attention_mask"] = examples.global_positions[row, :source]
        return {name: torch.from_numpy(values.astype(np.int64)) for name, values in item.items()}

    def collate(self, items: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Pad items to a batch: a ``collate_fn`` for ``DataLoader``, or a collator for ``Trainer``."""
        pad = self.special_tokens[PAD]
        filler = {"input_ids": pad, "decoder_input_ids": pad, "labels": IGNORED}
        return {
            name: pad_sequence([item[name] for item in items], batch_first=True, padding_value=filler.get(name, 0))
            for name in items[0]
        }


def _source(
    corpus: str,
    masks: str | os.PathLike[str] | None,
    objective: str | Objective | None,
    preset: str | None,
    options: Mapping[str, Any] | None,
    seed: int,
) -> MaskedCorpus:
    """Open the source that the arguments of ``Dataset`` describe."""
    rows = Corpus(mirrored(corpus))
    if objective is None and masks is not None:
        return MaskedCorpus.stored(rows, MaskSet(mirrored(os.fspath(masks)), options))
    if objective is None or masks is not None:
        raise FarspanError(f"{corpus}: give either masks, a folder, or objective, which draws masks")
    if isinstance(objective, str):
        objective = load_objective(objective, preset, options)
        if hasattr(objective, "with_tools"):
            objective = equip(objective, Tools(load_tokenizer_of(rows.folder)))
    return MaskedCorpus.drawn(rows, objective, seed)
