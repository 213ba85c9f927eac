"""The protocol of attention patterns, and everything the trainer knows about one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from trainer.model.context import Context
from trainer.model.kernels.plans import Rows
from trainer.model.kernels.varlen import Plan
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import NormConfig

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""FlexAttention's ``score_mod(score, batch, head, query, key)``."""


@dataclass(frozen=True)
class SideKeys:
    """Keys that follow those of the positions, as FlexAttention sees them after padding.

    Attributes:
        start: index of the first.
        count: number of side keys.
        padded: their number after padding.
        last: ``(B,)`` int64, index of each row's last one among them.
    """

    start: int
    count: int
    padded: int
    last: Tensor


class Pattern(ABC):
    """A pattern of self-attention: it determines which positions attend to which.

    A pattern is one file of ``patterns/``: a frozen dataclass. Its fields are the keys of a recipe, checked in
    ``__post_init__``; its field ``pattern`` is its name. What this class leaves abstract, every pattern states; the
    rest has defaults that suit a pattern without learned tokens, side keys or weights of its own.

    With learned tokens, sequences are ``(B, G + L)``: G is ``extra_tokens``, or, where documents must not see each
    other, that times ``context.documents``, with the tokens of document 0 first. A context describes the L positions.

    Attributes:
        pattern: the name that a recipe gives.
        uses_flex: CUDA kernels take the pattern as ``mask_mod`` (FlexAttention), not as ``plan`` (varlen).
        takes_global_positions: attends to the positions that a task makes global (``context.globals``).
        optional_weights: some weights of its layer take no part in some batches, and get no gradient there.
    """

    pattern: str
    uses_flex: ClassVar[bool] = False
    takes_global_positions: ClassVar[bool] = False
    optional_weights: ClassVar[bool] = False

    @property
    def extra_tokens(self) -> int:
        """Number of learned tokens before the sequence in all layers of the encoder."""
        return 0

    def check(self, layers: int) -> None:  # noqa: B027 - most patterns fit any encoder
        """Check the pattern for an encoder with this number of layers.

        Raises:
            FarspanError: fields that do not fit it.
        """

    def at(self, layer: int) -> Pattern:
        """The pattern of the 0-based ``layer``."""
        return self

    @abstractmethod
    def layer(self, width: int, heads: HeadsConfig, norm: NormConfig, dropout: float) -> nn.Module:
        """Make the self-attention layer, with the weights that the pattern needs.

        Args:
            width: of the hidden states, d.
            heads: of the attention.
            norm: the model's kind of norm.
            dropout: probability of dropping an attention weight.
        """

    @abstractmethod
    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        """Attend within the pattern; the reference that every kernel must equal.

        Args:
            q, k, v: ``(B, G + L, H, D)``; k and v with the pattern's side keys, if any, at the end.
            context: of the L positions.
            dropout: probability of dropping an attention weight.
            scale: of the scores; None is 1 / sqrt(D).

        Returns:
            ``(B, G + L, H, D)``; zeros where a query attends to no key.
        """

    @abstractmethod
    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        """True where ``query`` attends to ``key``, apart from padding and documents.

        Args:
            query, key: int64 indices among the ``G + length`` positions, of shapes that broadcast.
            length: L.

        Returns:
            bool, of the broadcast shape.
        """

    @abstractmethod
    def flops(self, length: int, width: int) -> int:
        """Floating-point operations of scores and mixing, forward, for one sequence and ``H * D = width``."""

    def extra_flops(self, length: int, width: int, inner: int, global_positions: int) -> int:
        """Operations of one layer besides ``flops`` and the four projections of each position.

        Args:
            length: L.
            width: d.
            inner: H * D.
            global_positions: number of positions that the task makes global.
        """
        return 0

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        """Key position - query position, int64, in the shapes in which ``attend`` takes biases, one per table of
        relative positions; none where the pattern does not support relative positions."""
        return ()

    def plan(self, rows: Rows) -> Plan | None:
        """The groups of queries and keys for ``varlen_attn``; None where groups cannot express the pattern."""
        return None

    def side_documents(self, context: Context, length: int) -> Tensor | None:
        """The document of each side key, ``(B, side keys)`` int64, below 0 where there is none; None where every query
        attends to all of them."""
        return None

    def score_mod(self, biases: tuple[Tensor, ...], sides: SideKeys | None) -> ScoreMod | None:
        """The biases of relative positions as FlexAttention adds them; of patterns with ``uses_flex`` and ``offsets``.

        Args:
            biases: ``(H, *offsets.shape)`` each.
            sides: the side keys; None where there are none.
        """
        return None
