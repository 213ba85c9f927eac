"""Extension of a short model to a long one: reuse of its weights, and initialisation of new ones.

For inputs within the short model's range (one block, half a window, less than one summary) the long model initially has
the same logits. Learned global tokens are an exception: see ``sample_globals``.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from corpora.errors import FarspanError
from corpora.keyed import id_keys, make_key
from trainer.conversion.vocabulary import Vocabulary
from trainer.model.build import build_model
from trainer.model.config import ModelConfig
from trainer.model.positions import tile_positions

TRAINING = (
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "initialisation",
    "init_std",
    "encoder.pooling.reference_init",
)
"""Fields that affect training only, not what a trained model computes."""


def differences(
    one: ModelConfig, other: ModelConfig, allowed: tuple[str, ...] = TRAINING
) -> list[tuple[str, Any, Any]]:
    """List every difference: dotted field, its value in ``one`` and in ``other``."""
    ours, theirs = flat(one), flat(other)
    return [
        (name, ours.get(name), theirs.get(name))
        for name in sorted(ours | theirs)
        if ours.get(name) != theirs.get(name) and not any(fnmatchcase(name, pattern) for pattern in allowed)
    ]


def flat(config: ModelConfig) -> dict[str, Any]:
    """Map dotted fields to values, without None values but always with the width of heads."""
    return dict(_leaves(config.as_table(), "")) | {"heads.width": config.head_width}


def _leaves(section: Mapping[str, Any], prefix: str) -> Any:
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


_ADAPTABLE = (
    *TRAINING,
    "encoder.positions.count",
    "decoder.positions.count",
    *(
        f"{side}.positions.{name}"
        for side in ("encoder", "decoder")
        for name in ("factor", "scaling", "trained_length")
    ),
    "embedding.own_id",
    "encoder.attention.*",
    "encoder.pooling.*",
    "decoder.cross_attention",
    "decoder.global_cross_attention",
    "heads.bias",  # only biases of zero, such as PEGASUS's, can be dropped
)


def adapt(
    state: Mapping[str, Tensor], config: ModelConfig, target: ModelConfig, vocabulary: Vocabulary, seed: int = 0
) -> dict[str, Tensor]:
    """Return the initial state of ``target``, made from the state of a model of ``config``.

    Learned positions are tiled, so that a block has the rows it was trained with; projections of global positions are
    copies of the others (Longformer, arXiv:2004.05150, section 5); learned global tokens are sampled from the token
    table, and their norms are copies of the tokens' (PEGASUS-X, arXiv:2208.04347, section 4); relative positions of
    summaries are copies of those of tokens; pooled attention is newly initialised, with zero output; cross-attention to
    learned tokens is a copy of that to the sequence, with zero output; an id's own input vector is a copy of its row;
    scaled rotary positions have no weights. The target may have fewer layers with
    cross-attention (PEGASUS-X, appendix B.3, table 13): the others' weights are dropped.
    """
    if found := differences(config, target, _ADAPTABLE):
        lines = [f"  model.{field}: the model has {ours!r}, the target {theirs!r}" for field, ours, theirs in found]
        cures = [f"--set model.{field}={_as_toml(ours)}" for field, ours, _ in found if ours is not None]
        raise FarspanError(
            "the model cannot become the target:\n"
            + "\n".join(lines)
            + "\ngive the target the model's values, here and "
            f"in training ({' '.join(cures)}), or convert another model"
        )
    drawn = build_model(target, vocabulary.size, seed).state_dict()
    sources = {name: _source(name, state) for name in drawn}
    dropped = _find_dropped_crossings(config, target)
    if lost := sorted(
        name for name in state.keys() - set(sources.values()) if state[name].any() and not name.startswith(dropped)
    ):
        raise FarspanError(
            "the target has no place for these learned weights:\n  " + "\n  ".join(lost) + "\n"
            "choose a target with the same pattern, or with one that has them"
        )
    adapted = {name: _initialise(name, tensor, state, sources[name]) for name, tensor in drawn.items()}
    own = target.embedding.own_id
    if own is not None and "tokens.own" not in state and own < len(adapted["tokens.weight"]):
        adapted["tokens.own"] = adapted["tokens.weight"][own].clone()
    if "encoder.extra" in adapted and "encoder.extra" not in state:
        count = len(adapted["encoder.extra"])
        adapted["encoder.extra"] = sample_globals(state["tokens.weight"], count, vocabulary, seed)
    return adapted


def _find_dropped_crossings(config: ModelConfig, target: ModelConfig) -> tuple[str, ...]:
    """Return the prefixes of the cross-attentions that the target drops, with their norms."""
    if config.decoder is None or target.decoder is None:
        return ()
    ours, theirs = (
        {layer for layer in range(decoder.layers) if decoder.crosses(layer)}
        for decoder in (config.decoder, target.decoder)
    )
    if added := sorted(theirs - ours):
        raise FarspanError(
            f"model.decoder.cross_attention: the model's layers {added} attend to no encoder, so the target's cannot "
            f"start from them; choose among {sorted(ours)}"
        )
    parts = ("cross_attention", "global_cross_attention")
    return tuple(f"decoder.layers.{layer}.{part}" for layer in sorted(ours - theirs) for part in parts)


def _as_toml(value: Any) -> str:
    """Format a value for ``--set`` in a shell."""
    return str(value).lower() if isinstance(value, bool) else str(value).replace(" ", "")


def _source(name: str, state: Mapping[str, Tensor]) -> str | None:
    """Return the name of the tensor in ``state`` that ``name`` is initialised from, or None."""
    candidates = (
        name,
        name.replace(".attention.global_qkv.", ".attention.qkv."),
        name.replace(".attention_residual.norm.tokens.", ".attention_residual.norm."),
        name.replace(".attention_residual.norm.extra.", ".attention_residual.norm."),
        name.replace("encoder.biases.1.", "encoder.biases.0."),
        name.replace(".global_cross_attention", ".cross_attention"),
    )
    return next((candidate for candidate in candidates if candidate in state), None)


def _initialise(name: str, drawn: Tensor, state: Mapping[str, Tensor], source: str | None) -> Tensor:
    if source is None:
        return drawn
    if name.endswith(".embedded.positions.weight"):
        return tile_positions(state[source], len(drawn))
    if state[source].shape != drawn.shape:
        raise FarspanError(
            f"{name} is {tuple(drawn.shape)} in the target and {tuple(state[source].shape)} in the model; give "
            "the target the model's sizes"
        )
    if ".global_cross_attention.out." in name and source != name:
        return torch.zeros_like(drawn)
    return state[source].clone()


def sample_globals(table: Tensor, count: int, vocabulary: Vocabulary, seed: int) -> Tensor:
    """Sample ``count`` rows of the token table ``(V, d)`` without replacement, from all ids except special tokens.

    Ids after the tokenizer's may never have been trained, and are not sampled either. Returns ``(count, d)``, not
    scaled by sqrt(d), as the encoder expects.

    The adapted model (PEGASUS -> PEGASUS-X, arXiv:2208.04347) is not equivalent to the short one. A softmax gives every
    key a weight above zero, and one of two opposite queries gives a key a score of at least 0, so no initial value of
    the learned tokens is neutral. Attention gives a position ``(1 - p) short + p learned`` in every layer and head:
    ``short`` is the short model's result, ``learned`` a mean of the learned tokens' values, and p the sum of their
    weights, with equal scores G / (G + L): one half for 128 tokens and as many positions. Such a model must be trained
    further before use, as PEGASUS-X was for 300,000 steps.

    A row's rank in the draw depends only on its id and the seed, so a smaller sample is a prefix of a larger one.
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
