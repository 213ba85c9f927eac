# mypy: ignore-errors
"""BART-LS (arXiv:2209.10052): BART whose encoder attends within blocks and, in its top layers, to pooled windows.

Needs transformers >= 5. Pad sources on the right.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BartConfig, BartForConditionalGeneration, BartModel
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.bart.modeling_bart import (
    BartAttention,
    BartEncoder,
    BartEncoderLayer,
    BartLearnedPositionalEmbedding,
)
from transformers.utils.output_capturing import capture_outputs


class BartLSConfig(BartConfig):
    """BART's configuration; ``max_position_embeddings`` is the length of the decoder's position table."""

    model_type = "bart_ls"

    max_encoder_position_embeddings: int = 16384
    block_size: int = 1024
    block_overlap: int = 0  # positions of each neighbour that a block attends to
    pooling_layers: int = 4
    pooling_kernel: int = 18
    pooling_stride: int = 12


class BartLSEncoderLayer(BartEncoderLayer):
    def __init__(self, config: BartLSConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.config = config
        self.pooled_attn = None
        if layer_idx >= config.encoder_layers - config.pooling_layers:
            self.pooled_attn = BartAttention(
                config.d_model, config.encoder_attention_heads, config.attention_dropout, config=config
            )

    def forward(self, hidden_states: Tensor, padding_mask: Tensor, **kwargs: Any) -> Tensor:
        """Map ``(B, L, d)`` to the same shape; ``padding_mask`` is ``(B, L)`` bool, False at padding."""
        mixed = self._attend_in_blocks(hidden_states, padding_mask)
        if self.pooled_attn is not None:
            windows, mask = self._pool(mixed, padding_mask)
            mixed = mixed + self._attend(self.pooled_attn, mixed, windows, mask)
        x = self.self_attn_layer_norm(hidden_states + self._drop(mixed, self.dropout))
        inner = self._drop(self.activation_fn(self.fc1(x)), self.activation_dropout)
        return self.final_layer_norm(x + self._drop(self.fc2(inner), self.dropout))

    def _attend_in_blocks(self, x: Tensor, padding_mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        size = min(self.config.block_size, length)
        side = self.config.block_overlap if size < length else 0
        count = -(-length // size)
        x = F.pad(x, (0, 0, side, count * size - length + side))  # (B, side + n size + side, d)
        mask = F.pad(padding_mask, (side, count * size - length + side))
        blocks = x[:, side : side + count * size].reshape(batch * count, size, width)
        keys = x.unfold(1, size + 2 * side, size).transpose(2, 3).reshape(batch * count, -1, width)
        seen = mask.unfold(1, size + 2 * side, size).reshape(batch * count, -1)
        return self._attend(self.self_attn, blocks, keys, seen).reshape(batch, -1, width)[:, :length]

    def _pool(self, x: Tensor, padding_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Average over the tokens of each window: ``(B, P, d)``, and the mask of the windows of each row."""
        kernel, stride = self.config.pooling_kernel, self.config.pooling_stride
        shares = padding_mask[:, None].to(x.dtype)  # (B, 1, L)
        total, share = (F.avg_pool1d(part, kernel, stride, kernel // 2) for part in (x.mT * shares, shares))
        counts = (padding_mask.sum(-1, keepdim=True) + 2 * (kernel // 2) - kernel) // stride + 1
        windows = (total / share.clamp(min=1 / kernel)).mT
        return windows, torch.arange(windows.shape[1], device=x.device) < counts

    def _attend(self, attention: nn.Module, x: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        mask = mask | ~mask.any(-1, keepdim=True)  # a softmax without keys is NaN; rows of padding alone are not used
        dense = create_bidirectional_mask(
            config=self.config, inputs_embeds=x, attention_mask=mask, encoder_hidden_states=keys
        )
        return attention(x, key_value_states=keys, attention_mask=dense)[0]

    def _drop(self, x: Tensor, probability: float) -> Tensor:
        return F.dropout(x, probability, self.training)


class BartLSEncoder(BartEncoder):
    _can_record_outputs: ClassVar = {"hidden_states": BartLSEncoderLayer}

    def __init__(self, config: BartLSConfig) -> None:
        super().__init__(config)
        self.embed_positions = BartLearnedPositionalEmbedding(config.max_encoder_position_embeddings, config.d_model)
        self.layers = nn.ModuleList(BartLSEncoderLayer(config, layer) for layer in range(config.encoder_layers))
        self.post_init()

    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        x = inputs_embeds + self.embed_positions(inputs_embeds[..., 0])
        x = F.dropout(self.layernorm_embedding(x), self.dropout, self.training)
        mask = x.new_ones(x.shape[:2]) if attention_mask is None else attention_mask
        for layer in self.layers:
            x = layer(x, mask.bool())
        return BaseModelOutput(last_hidden_state=x)


class BartLSModel(BartModel):
    config_class = BartLSConfig
    _supports_flash_attn = _supports_flex_attn = False

    def __init__(self, config: BartLSConfig) -> None:
        super().__init__(config)
        self.encoder = BartLSEncoder(config)
        self.post_init()


class BartLSForConditionalGeneration(BartForConditionalGeneration):
    config_class = BartLSConfig
    _no_split_modules: ClassVar = ["BartLSEncoderLayer", "BartDecoderLayer"]
    _supports_flash_attn = _supports_flex_attn = False

    def __init__(self, config: BartLSConfig) -> None:
        super().__init__(config)
        self.model = BartLSModel(config)
        self.post_init()
