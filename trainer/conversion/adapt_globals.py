"""What learned global tokens begin as in an encoder that had none (PEGASUS -> PEGASUS-X, arXiv:2208.04347).

How far the adapted model is the short one. A softmax gives every key that is seen a share above zero, and of two
opposite queries one scores a key at 0 or more, so no first value of the learned tokens is silent for every query:

- With the learned tokens out of the positions' sight, logits are those of the short model up to ``size / 2``
  positions, or ``size`` where blocks are not staggered: the first block of shifted layers is a half one.
- With them in sight, attention gives a position ``(1 - p) short + p learned`` in every layer and head: ``short`` is
  what the short model gives for the same queries, keys and values, ``learned`` a mean of the learned tokens' values,
  p their share of the weights. It is G / (G + L) where all scores are alike: one half for 128 tokens and as many
  positions. So training must go on before such a model is used, as PEGASUS-X's did for 300,000 steps.

The norm of the learned tokens begins as that of the positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from corpora.errors import FarspanError
from corpora.keyed import id_keys, make_key
from trainer.conversion.vocabulary import Vocabulary


def sample_globals(table: Tensor, count: int, vocabulary: Vocabulary, seed: int) -> Tensor:
    """Rows of the token table, without replacement: the tokenizer's own, without those of special tokens.

    A row's place in the draw depends on its id and the seed alone, so more tokens begin with those that fewer have.

    Args:
        table: ``(V, d)``.
        count: G.
        vocabulary: of the table; rows behind the tokenizer's ids may never have been trained.
        seed: of the draw.

    Returns:
        ``(G, d)``, not scaled by sqrt(d), as the encoder takes them.

    Raises:
        FarspanError: fewer rows than ``count``.
    """
    special = set(vocabulary.special.ids.values())
    rows = [row for row in range(vocabulary.tokenizer_size) if row not in special]
    if count > len(rows):
        raise FarspanError(
            f"model.encoder.attention.global_tokens is {count}, but the token table has {len(rows)} rows of words to "
            f"sample them from; choose at most {len(rows)}"
        )
    drawn = id_keys(make_key(seed, "learned global tokens"), map(str, rows))[:, 0].argsort(kind="stable")[:count]
    return table[torch.tensor(rows)[torch.from_numpy(drawn)]]
