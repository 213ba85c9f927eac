"""The configuration of a model as frozen dataclasses; the vocabulary comes from the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

from corpora.errors import FarspanError
from trainer.model.layers.attention import Causal
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import EmbeddingConfig, FeedForwardConfig, NormConfig
from trainer.model.pattern import Pattern
from trainer.model.patterns import AnyPattern
from trainer.model.patterns.block import Block
from trainer.model.patterns.layered import Layered
from trainer.model.patterns.span import Span
from trainer.model.positions import Buckets, Learned, NoPositions, Rotary, Sinusoidal


@dataclass(frozen=True, kw_only=True)
class OutputConfig:
    """The output layer, from the last hidden states to logits.

    Attributes:
        tied: use the token table as the output layer's weight.
        scaled: divide the last states by sqrt(width), as in T5 with a tied table.
    """

    tied: bool = True
    scaled: bool = False


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The encoder.

    Attributes:
        layers: number of layers.
        positions: position scheme; learned positions limit the source to the rows of their table.
        attention: the self-attention pattern.
        pooling: pooled attention of BART-LS in the top layers; None without it.
    """

    layers: int
    positions: Learned | Sinusoidal | Buckets | Rotary | NoPositions
    attention: AnyPattern = field(default_factory=Block)
    pooling: Pooling | None = None

    def __post_init__(self) -> None:
        _check_positive("model.encoder.layers", self.layers)
        self.attention.check(self.layers)
        if self.pooling and self.pooling.layers > self.layers:
            raise FarspanError(
                f"model.encoder.pooling.layers is {self.pooling.layers}, but model.encoder.layers is {self.layers}; "
                "pool at most all layers"
            )
        if self.pooling and self.attention.extra_tokens:
            raise FarspanError(
                f"model.encoder.pooling cannot be used with the pattern {self.attention.pattern!r}, which has learned "
                "tokens for the same purpose; remove one of them"
            )
        if isinstance(self.positions, Buckets) and not self.attention.offsets(1):
            raise FarspanError(
                f"model.encoder.positions are relative, which the pattern {self.attention.pattern!r} does not support; "
                "use learned, sinusoidal or rotary positions"
            )

    def has_pooling(self, layer: int) -> bool:
        """True if the 0-based ``layer`` has pooled attention."""
        return self.pooling is not None and layer >= self.layers - self.pooling.layers


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """The decoder, with causal self-attention and full cross-attention.

    Attributes:
        layers: number of layers.
        positions: position scheme; learned positions limit the target to the rows of their table.
        attention: pattern of self-attention; None attends to all earlier positions.
        cross: ``each``: cross-attention is a sublayer of its own; ``merged``: self-attention also attends to the
            encoder's states, in one softmax with the same weights (T5Gemma 2).
        cross_attention: ``all``, or the 0-based layers that attend to the encoder's output (PEGASUS-X, appendix B.3).
        global_cross_attention: before each cross-attention to the tokens, add one to the encoder's learned tokens, with
            its own norm and weights (PEGASUS-X, section 3.2 and table 2).
    """

    layers: int
    positions: Learned | Sinusoidal | Buckets | Rotary | NoPositions
    attention: Layered | Span | None = None
    cross: Literal["each", "merged"] = "each"
    cross_attention: Literal["all"] | tuple[int, ...] = "all"
    global_cross_attention: bool = False

    def __post_init__(self) -> None:
        _check_positive("model.decoder.layers", self.layers)
        pattern = self.attention
        if pattern and (pattern.right or (isinstance(pattern, Layered) and not pattern.causal)):
            raise FarspanError(
                f"model.decoder.attention attends to later positions ({self.attention}); set right to 0 and, for the "
                "pattern 'layered', causal to true"
            )
        if isinstance(self.positions, Buckets) and (self.attention or self.cross == "merged"):
            raise FarspanError(
                "model.decoder.positions are relative, which neither model.decoder.attention nor merged "
                "cross-attention supports; use learned, sinusoidal or rotary positions"
            )
        if self.cross == "merged" and self.global_cross_attention:
            raise FarspanError(
                "model.decoder.global_cross_attention needs model.decoder.cross=each; unset it, or change cross"
            )
        if self.cross_attention == "all":
            return
        unknown = [layer for layer in self.cross_attention if not 0 <= layer < self.layers]
        if unknown or not self.cross_attention:
            raise FarspanError(
                f"model.decoder.cross_attention is {list(self.cross_attention)}; give at least one layer, counted "
                f"from 0 to {self.layers - 1}, or 'all'"
            )

    def pattern(self, layer: int) -> Pattern:
        """Self-attention pattern of the 0-based ``layer``."""
        return Causal() if self.attention is None else self.attention.at(layer)

    def crosses(self, layer: int) -> bool:
        """True if the 0-based ``layer`` has cross-attention."""
        return self.cross_attention == "all" or layer in self.cross_attention


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """An encoder-decoder; without a decoder, a masked language model.

    Attributes:
        width: width of the hidden states, d.
        heads: attention heads; unless their own width is set, their count must divide ``width``.
        feed_forward, norm, embedding, output: settings common to encoder and decoder.
        dropout: probability of dropout on embeddings and on every sublayer's output.
        attention_dropout: dropout of attention weights; above 0 there is no fast attention kernel on a CPU.
        activation_dropout: dropout inside the feed-forward layers.
        initialisation: ``normal`` with ``init_std``, or ``t5`` by the fan-in of each layer, as in T5 1.1 and LongT5.
        init_std: standard deviation of the initial weights; ``width`` is read as 1 / sqrt(width). BART's .02 suits
            widths about 768; the attention of a model of width 64 to 128 starts flat with it, and stays so.
    """

    width: int
    heads: HeadsConfig
    feed_forward: FeedForwardConfig
    encoder: EncoderConfig
    decoder: DecoderConfig | None = None
    norm: NormConfig = field(default_factory=NormConfig)
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    initialisation: Literal["normal", "t5"] = "normal"
    init_std: float | Literal["width"] = 0.02

    def __post_init__(self) -> None:
        _check_positive("model.width", self.width)
        if self.heads.width is None and self.width % self.heads.count:
            raise FarspanError(
                f"model.heads.count is {self.heads.count} and does not divide model.width {self.width}; "
                "choose a count that does, or set model.heads.width"
            )
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise FarspanError(f"model.{name} is {getattr(self, name)}; a probability in [0, 1) is needed")
        if self.init_std == "width":
            object.__setattr__(self, "init_std", self.width**-0.5)
        if not 0 < cast("float", self.init_std) < math.inf:
            raise FarspanError(
                f"model.init_std is {self.init_std}; it must be above 0 and finite (BART's is 0.02), or width"
            )
        self._check_positions()

    def _check_positions(self) -> None:
        for side, stack in (("encoder", self.encoder), ("decoder", self.decoder)):
            if stack is None:
                continue
            if isinstance(stack.positions, Rotary) and self.head_width % 2:
                raise FarspanError(
                    f"model.{side}.positions are rotary and need an even head width, but heads are {self.head_width} "
                    "wide; choose an even width"
                )
            if isinstance(stack.positions, Sinusoidal) and self.width % 2:
                raise FarspanError(
                    f"model.{side}.positions are sinusoidal, half sines, half cosines, but model.width is "
                    f"{self.width}; choose an even width"
                )
        if self.decoder and self.decoder.global_cross_attention and not self.encoder.attention.extra_tokens:
            raise FarspanError(
                "model.decoder.global_cross_attention is set, but the encoder's pattern "
                f"{self.encoder.attention.pattern!r} has no learned tokens; unset it"
            )

    def as_table(self) -> dict[str, Any]:
        """The section of a recipe with every value: tuples as lists, without None values."""
        return as_table(asdict(self))

    @property
    def head_width(self) -> int:
        """Width of a head, D."""
        return self.heads.width or self.width // self.heads.count


@dataclass(frozen=True, kw_only=True)
class GeneratorConfig:
    """The generator, trained on all candidates beside the model (BART-LS, arXiv:2209.10052, section 2.3).

    A generator that only scores is ``data.objective.scorer``.

    Attributes:
        initial: encoder-only run of ``farspan train`` with the generator's initial weights.
        model: configuration of an encoder-only model with random weights, instead of ``initial``.
        weight: weight of the generator's mean loss per candidate token against the model's mean loss per target token.
            The paper does not state it, and the published code ignores its setting.
    """

    initial: str | None = None
    model: ModelConfig | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if (self.initial is None) == (self.model is None):
            raise FarspanError(
                "generator: set either initial, the run that trained it, or model, a section with its sizes, to begin "
                "with random weights"
            )
        if self.model is not None and self.model.decoder is not None:
            raise FarspanError("generator.model has a decoder section; it must be an encoder alone")
        if not 0 < self.weight < math.inf:
            raise FarspanError(f"generator.weight is {self.weight}; it must be above 0 and finite")

    def identity(self) -> dict[str, Any]:
        """Values that must not change when a run resumes."""
        sections = asdict(self)
        return {name: sections[name] for name in ("model", "weight")}

    def check_use(self, model: ModelConfig, pairs: bool) -> None:
        """Check that the model can use this generator, and the data, which may be ``pairs``."""
        if not model.decoder:
            raise FarspanError(
                "generator chooses the targets of a decoder, but the model has none; add a model.decoder section, or "
                "remove the generator's"
            )
        if pairs:
            raise FarspanError(
                "generator chooses what to hide in a corpus, but the data are pairs; remove the generator section"
            )


def as_table(section: Any) -> Any:
    """Convert a configuration's dictionary to a recipe's form: tuples as lists, without None values."""
    if isinstance(section, Mapping):
        return {name: as_table(value) for name, value in section.items() if value is not None}
    return list(section) if isinstance(section, tuple) else section


def _check_positive(name: str, size: int) -> None:
    if size < 1:
        raise FarspanError(f"{name} is {size}; it must be at least 1")
