"""Initialisation of learned global tokens in an encoder that had none (PEGASUS -> PEGASUS-X, arXiv:2208.04347).

The adapted model is not equivalent to the short one. A softmax gives every key a weight above zero, and one of two
opposite queries gives a key a score of at least 0, so no initial value of the learned tokens is neutral:

- If positions did not attend to the learned tokens, logits would equal the short model's for up to ``size / 2``
  positions, or ``size`` if blocks are not staggered, because the first block of shifted layers is half a block.
- Since they do, attention gives a position ``(1 - p) short + p learned`` in every layer and head: ``short`` is the
  short model's result for the same queries, keys and values, ``learned`` a mean of the learned tokens' values, and p
  the sum of their weights. With equal scores p is G / (G + L): one half for 128 tokens and as many positions. Such a
  model must therefore be trained further before use, as PEGASUS-X was for 300,000 steps.

The norm of the learned tokens is initialised as a copy of the positions' norm.
"""

from __future__ import annotations

import torch
from torch import Tensor

from corpora.errors import FarspanError
from corpora.keyed import id_keys, make_key
from trainer.conversion.vocabulary import Vocabulary


def sample_globals(table: Tensor, count: int, vocabulary: Vocabulary, seed: int) -> Tensor:
    """Sample rows of the token table without replacement, from all ids of the tokenizer except special tokens.

    A row's rank in the draw depends only on its id and the seed, so a smaller sample is a prefix of a larger one.

    Args:
        table: token table, ``(V, d)``.
        count: number of rows, G.
        vocabulary: vocabulary of the table; rows after the tokenizer's ids may never have been trained.
        seed: seed of the draw.

    Returns:
        ``(G, d)``, not scaled by sqrt(d), as the encoder expects.
    """
    special = set(vocabulary.special.ids.values())
    rows = [row for row in range(vocabulary.tokenizer_size) if row not in special]
    if count > len(rows):
        raise FarspanError(
            f"model.encoder.attention.global_tokens is {count}, but the token table has {len(rows)} text tokens "
            f"to sample them from; choose at most {len(rows)}"
        )
    drawn = id_keys(make_key(seed, "learned global tokens"), map(str, rows))[:, 0].argsort(kind="stable")[:count]
    return table[torch.tensor(rows)[torch.from_numpy(drawn)]]
