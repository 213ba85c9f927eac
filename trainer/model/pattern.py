"""The base class of attention patterns, with all that encoder, kernels and estimates need of a pattern."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from trainer.model.context import Context
from trainer.model.kernels.varlen import Plan, Rows
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import NormConfig

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""FlexAttention's ``score_mod(score, batch, head, query, key)``."""


@dataclass(frozen=True)
class SideKeys:
    """Layout of the side keys, which follow the keys of the positions, after padding for FlexAttention."""

    start: int  # index of the first side key
    count: int  # number of side keys
    padded: int  # number of side keys after padding
    unused: Tensor  # (B, padded) bool, True for side keys that no query attends to


class Pattern(ABC):
    """A self-attention pattern, which determines the keys that each position attends to.

    A pattern is a frozen dataclass in a file of ``patterns/``. Its fields are keys of a recipe, validated in
    ``__post_init__``; the field ``pattern`` is its name. Every pattern implements the abstract methods; the others
    have defaults for patterns without learned tokens, side keys or weights of their own.

    With learned tokens, sequences are ``(B, G + L)``. G is ``extra_tokens``, times ``context.most_documents`` if
    documents must not attend to each other; the tokens of document 0 come first. A context describes the L positions
    only.

    Attributes:
        pattern: the pattern's name in recipes.
        uses_flex: True if CUDA kernels take the pattern as ``mask_mod`` (FlexAttention) instead of ``plan`` (varlen).
        takes_global_positions: True if the pattern has global attention at the positions ``context.globals``.
        compiles: True if its layers can be compiled.
        optional_weights: True if some weights of the layer are unused, and get no gradient, in some batches.
    """

    pattern: str
    uses_flex: ClassVar[bool] = False
    takes_global_positions: ClassVar[bool] = False
    compiles: ClassVar[bool] = True
    optional_weights: ClassVar[bool] = False

    @property
    def extra_tokens(self) -> int:
        """Number of learned tokens before the sequence in all layers of the encoder."""
        return 0

    @property
    def unit(self) -> int | None:
        """Number of positions at whose multiples an example of a packed row begins, to be encoded as if alone.

        None for a pattern that depends on the whole row, which cannot be packed.
        """
        return 1

    @property
    def local(self) -> bool:
        """True if rotary positions have their local base."""
        return False

    def check(self, layers: int) -> None:  # noqa: B027 - most patterns fit any encoder
        """Check the pattern for an encoder with this number of layers; raise ``FarspanError`` if it does not fit."""

    def at(self, layer: int) -> Pattern:
        """Return the pattern of the 0-based ``layer``."""
        return self

    def layer(self, width: int, heads: HeadsConfig, norm: NormConfig, dropout: float) -> nn.Module | None:
        """Make the self-attention layer of width d, if the pattern needs weights of its own; None for the usual one.

        ``norm`` is the model's kind of norm, ``dropout`` the probability of dropping an attention weight.
        """
        return None

    @abstractmethod
    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        """Attend within the pattern; the reference implementation for all kernels.

        Args:
            q, k, v: ``(B, G + L, H, D)``; k and v with the pattern's side keys, if any, at the end, and perhaps with
                fewer heads, a divisor of H.
            context: context of the L positions.
            dropout: probability of dropping an attention weight.
            scale: factor of the scores; None is 1 / sqrt(D).

        Returns:
            ``(B, G + L, H, D)``; zeros where a query attends to no key.
        """

    @abstractmethod
    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        """Return True where ``query`` attends to ``key``, regardless of padding and documents.

        Both are int64 indices among the ``G + length`` positions, of shapes that broadcast.
        """

    @abstractmethod
    def flops(self, length: int, width: int) -> int:
        """Count the forward operations of scores and weighted sums for one sequence and ``H * D = width``."""

    def extra_flops(self, length: int, width: int, inner: int, global_positions: int) -> int:
        """Count the operations of one layer besides ``flops`` and the four projections of each of L positions.

        ``width`` is that of the hidden states, ``inner`` that of all heads together, H * D.
        """
        return 0

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        """Return key position - query position, int64, in the shapes of the biases that ``attend`` takes.

        There is one tensor per table of relative positions; none if the pattern does not support relative positions.
        """
        return ()

    def plan(self, rows: Rows) -> Plan | None:
        """Return the groups of queries and keys for ``varlen_attn``; None if groups cannot express the pattern."""
        return None

    def side_documents(self, context: Context, length: int) -> Tensor | None:
        """Return the document of each side key, ``(B, side keys)`` int64, below 0 for unused side keys.

        None means that every query attends to all side keys.
        """
        return None

    def score_mod(self, biases: tuple[Tensor, ...], sides: SideKeys | None) -> ScoreMod | None:
        """Return the biases, ``(H, *offsets.shape)`` each, as a ``score_mod``, if ``uses_flex`` and with ``offsets``.

        ``sides`` is the layout of the side keys; None if there are none.
        """
        return None
