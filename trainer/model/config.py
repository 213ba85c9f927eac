"""What a model is made of, as frozen dataclasses; the vocabulary comes from the data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from corpora.errors import FarspanError
from trainer.model.block import Block
from trainer.model.full import Full
from trainer.model.pooled import Pooling


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The encoder.

    Attributes:
        layers: how many.
        positions: rows of the position table, hence the longest source.
        attention: the self-attention pattern of every layer.
        pooling: BART-LS pooled attention in the top layers; None for none.

    Raises:
        FarspanError: sizes below 1, more pooled layers than layers.
    """

    layers: int
    positions: int
    attention: Block | Full = field(default_factory=Block)
    pooling: Pooling | None = None

    def __post_init__(self) -> None:
        _at_least_one("model.encoder", layers=self.layers, positions=self.positions)
        if self.pooling and self.pooling.layers > self.layers:
            raise FarspanError(
                f"model.encoder.pooling.layers is {self.pooling.layers}, but model.encoder.layers is {self.layers}; "
                "pool at most all layers"
            )

    def pooled(self, layer: int) -> bool:
        """Whether the 0-based ``layer`` has pooled attention."""
        return self.pooling is not None and layer >= self.layers - self.pooling.layers


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """The decoder: causal self-attention, full cross-attention.

    Attributes:
        layers: how many.
        positions: rows of the position table, hence the longest target.

    Raises:
        FarspanError: sizes below 1.
    """

    layers: int
    positions: int

    def __post_init__(self) -> None:
        _at_least_one("model.decoder", layers=self.layers, positions=self.positions)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """An encoder-decoder, or a masked language model where there is no decoder.

    Attributes:
        width: of the hidden states, d.
        heads: attention heads; they divide the width.
        feed_forward: inner width of the feed-forward layers.
        norm: ``post`` as in BART (after each residual sum) or ``pre`` (before each sublayer, and once at the end).
        activation: of the feed-forward layers.
        dropout: on embeddings and on every sublayer's output.
        attention_dropout: on attention weights; above 0 there is no fast attention kernel on a CPU.
        activation_dropout: inside the feed-forward layers.
        init_std: standard deviation of the initial weights.

    Raises:
        FarspanError: sizes below 1, heads that do not divide the width, probabilities outside [0, 1).
    """

    width: int
    heads: int
    feed_forward: int
    encoder: EncoderConfig
    decoder: DecoderConfig | None = None
    norm: Literal["post", "pre"] = "post"
    activation: Literal["gelu", "relu"] = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    init_std: float = 0.02

    def __post_init__(self) -> None:
        _at_least_one("model", width=self.width, heads=self.heads, feed_forward=self.feed_forward)
        if self.width % self.heads:
            raise FarspanError(
                f"model.heads is {self.heads} and does not divide model.width {self.width}; "
                "choose heads so that width / heads is whole"
            )
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise FarspanError(f"model.{name} is {getattr(self, name)}; a probability in [0, 1) is needed")
        if self.init_std <= 0:
            raise FarspanError(f"model.init_std is {self.init_std}; it must be above 0 (BART's is 0.02)")


def _at_least_one(section: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise FarspanError(f"{section}.{name} is {size}; it must be at least 1")
