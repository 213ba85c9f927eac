"""What autograd keeps of a forward pass, by formula, for one sequence without padding.

Attention counts as on a CPU, where each pattern knows exactly what it keeps (``Pattern.kept``). Fused kernels of CUDA
devices keep no more than that, and of windows much less, which is counted.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast

from trainer.model.causal import Causal
from trainer.model.config import ModelConfig
from trainer.model.patterns.local import Local
from trainer.model.patterns.tglobal import TGlobal
from trainer.model.patterns.window import Window
from trainer.model.relative import Buckets
from trainer.model.rotary import Rotary

Checkpointing = Literal["none", "selective", "layer"]


class Sizes(NamedTuple):
    """Bytes of a number.

    Attributes:
        narrow: that a matrix product takes or gives.
        wide: on the way past the layers, where norms read it.
        noise: that dropout multiplies by.
    """

    narrow: int
    wide: int
    noise: int

    @classmethod
    def of(cls, precision: Literal["bf16", "fp32"], device: str, sharded: bool = False) -> Sizes:
        """With ``precision`` on a ``device`` of this type; FSDP (``sharded``) computes all in bfloat16, autocast leaves
        norms and sums in float32."""
        narrow = 2 if precision == "bf16" else 4
        return cls(narrow, narrow if sharded else 4, 1 if device == "cuda" else narrow)

    @property
    def casts(self) -> bool:
        """Whether matrix products take copies, in fewer bytes, of what they are given."""
        return self.narrow < self.wide

    @property
    def fused(self) -> bool:
        """Whether attention to a window takes a kernel that needs neither masks nor copies of keys."""
        return self.narrow == 2 and self.noise == 1


class Layer(NamedTuple):
    """Bytes that a layer keeps.

    Attributes:
        whole: without activation checkpointing.
        products: the results of matrix products and of fused attention.
        entry: its input.
        working: the gradients that its backward pass holds at most.
    """

    whole: int
    products: int
    entry: int
    working: int

    def kept(self, mode: Checkpointing) -> int:
        return {"none": self.whole, "selective": self.entry + self.products, "layer": self.entry}[mode]


class Activations(NamedTuple):
    """Bytes for one sequence.

    Attributes:
        layers: encoder first.
        ends: what is kept before and after the stacks.
        memory: the encoder's output, which all layers of the decoder share.
        copied: whether layers keep copies of it instead, unless they are to be computed again.
    """

    layers: tuple[Layer, ...]
    ends: int
    memory: int = 0
    copied: bool = False

    def kept(self, mode: Checkpointing) -> int:
        """For the backward pass."""
        shared = 0 if self.copied and mode == "none" else self.memory
        return self.ends + shared + sum(layer.kept(mode) for layer in self.layers)

    def working(self, mode: Checkpointing) -> int:
        """At most while one layer goes backward: its gradients, and what it computes again."""
        return max(layer.working + layer.whole - min(layer.whole, layer.kept(mode)) for layer in self.layers)


def activations(config: ModelConfig, source: int, target: int, sizes: Sizes) -> Activations:
    """What is kept of ``source`` encoder and ``target`` decoder positions (asked positions without a decoder)."""
    encoder, decoder, d = config.encoder, config.decoder, config.width
    layers = [_encoder_layer(config, index, source, sizes) for index in range(encoder.layers)]
    ends = _embedded(config, source, sizes)
    if config.norm.placement == "pre":
        ends += _norms(config, source + encoder.attention.extra_tokens, sizes)
    if decoder is None:
        # the head: its input, what GELU takes and gives, what the norm gives
        return Activations(tuple(layers), ends + target * d * 4 * sizes.narrow)
    memory = source + (encoder.attention.extra_tokens if decoder.cross_attends_globals else 0)
    crossed = [decoder.crosses(index) for index in range(decoder.layers)]
    layers += [_decoder_layer(config, target, memory if crosses else 0, sizes) for crosses in crossed]
    ends += _embedded(config, target, sizes) + target * d * sizes.wide
    if config.norm.placement == "pre":
        ends += _norms(config, target, sizes)
    return Activations(tuple(layers), ends, memory * d * sizes.wide, sizes.casts)


def _embedded(config: ModelConfig, n: int, sizes: Sizes) -> int:
    return _norms(config, n, sizes) * config.embedding.norm + n * config.width * 4 * (config.dropout > 0)


def _norms(config: ModelConfig, n: int, sizes: Sizes) -> int:
    """One norm's input and statistics; RMSNorm keeps its input normalised too."""
    rms = config.norm.kind == "rms"
    return n * (config.width * sizes.wide * (2 if rms else 1) + 4 * (1 if rms else 2))


def _encoder_layer(config: ModelConfig, index: int, source: int, sizes: Sizes) -> Layer:
    encoder, heads, d, inner = config.encoder, config.heads.count, config.width, _inner(config)
    narrow, pattern = sizes.narrow, cast(Any, encoder.attention.at(index))
    n = pattern.extra_tokens + source
    keys, entering = n, d * n * narrow
    if isinstance(pattern, TGlobal):  # sums of blocks, normalised, stand behind the positions
        keys += n // pattern.block
        entering = d * keys * narrow + (keys - n) * (2 * d + 1) * 4
    attention = pattern.kept(source, inner, heads) * narrow
    if isinstance(pattern, Window):
        attention = _window(pattern, n, d, inner, heads, sizes)
    if isinstance(encoder.positions, Rotary):
        attention += inner * (n + keys) * narrow  # turned queries and keys
    products = inner * (3 * keys + n) * narrow
    results = 2 * n * d * narrow
    if isinstance(pattern, Local | TGlobal):
        results -= inner * n * narrow  # what is mixed within a band is computed again
    if encoder.pooling and encoder.pooled(index):
        products += encoder.pooling.kept(n, d, inner, heads) * narrow
        entering += n * d * narrow  # what self-attention gave
        results += n * d * narrow
    return _layer(config, n, products, results, attention, entering, sizes, sublayers=2)


def _window(pattern: Window, n: int, d: int, inner: int, heads: int, sizes: Sizes) -> int:
    """Within a window and to one global position, which has projections of its own."""
    # its keys and values, and the result once its own is put in; what it gathers from is kept as it is and as copied
    beside = n * (3 * inner * sizes.narrow + d * (sizes.narrow + sizes.wide) * sizes.casts)
    if sizes.fused:
        return beside + n * heads * 4
    groups = max(1, n // pattern.half)
    # every group has its own keys: three halves of a window, two at both ends, and the global one
    seen = (3 * n - 2 * pattern.half if groups > 2 else n) + groups
    masks = seen * (pattern.half if groups > 2 else n)
    return beside + n * heads * 4 + (2 * seen * inner + masks) * sizes.narrow


def _decoder_layer(config: ModelConfig, target: int, memory: int, sizes: Sizes) -> Layer:
    heads, d, inner, narrow = config.heads.count, config.width, _inner(config), sizes.narrow
    assert config.decoder is not None
    positions = config.decoder.positions
    products = 4 * inner * target * narrow
    attention = Causal().kept(target, inner, heads) * 4
    entering, results = d * target * narrow, 2 * d * target * narrow
    if isinstance(positions, Buckets):
        attention = heads * target * target * (4 + narrow)  # a learned bias brings the scores to memory
        results -= inner * target * narrow  # and what is mixed is computed again
    if isinstance(positions, Rotary):
        attention += 2 * inner * target * narrow
    if memory:
        products += 2 * inner * (target + memory) * narrow + heads * target * 4
        entering += d * target * narrow + (d * memory * narrow if sizes.casts else 0)
        results += d * target * narrow
    return _layer(config, target, products, results, attention, entering, sizes, sublayers=3 if memory else 2)


def _layer(
    config: ModelConfig,
    n: int,
    products: int,
    results: int,
    attention: int,
    entering: int,
    sizes: Sizes,
    sublayers: int,
) -> Layer:
    """The whole layer.

    Args:
        n: positions.
        products: what attention's matrix products and kernels give, all but ``results``, those of the last products of
            each sublayer.
        attention: what it keeps besides.
        entering: copies of what its first products take.
    """
    d, forward = config.width, config.feed_forward
    inside = n * forward.width * sizes.narrow
    # ReLU knows its input by its result.
    kept = inside * (4 if forward.gated else 1 if forward.activation == "relu" else 2)
    if config.activation_dropout:
        kept += n * forward.width * sizes.noise + (0 if forward.gated or forward.activation != "relu" else inside)
    noise = sublayers * n * d * sizes.noise * (config.dropout > 0)
    entering += n * d * sizes.narrow * (2 if forward.gated and sizes.casts else 1)
    return Layer(
        whole=entering + products + attention + kept + sublayers * _norms(config, n, sizes) + noise,
        products=products + results + inside * (2 if forward.gated else 1),
        entry=n * d * sizes.wide,
        working=2 * inside + 2 * n * d * sizes.wide,
    )


def _inner(config: ModelConfig) -> int:
    return config.heads.count * config.head_width
