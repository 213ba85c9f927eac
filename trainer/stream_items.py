"""Items and batches of rows for the decoders of transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from objectives.api.examples import IGNORED
from objectives.rendering.stream import Streams
from objectives.rendering.stream_layout import StreamLayout


def stream_items(streams: Streams, layout: StreamLayout) -> list[dict[str, Tensor]]:
    """Make an item of int64 tensors of each row.

    If batches shall have a mask, ``attention_mask`` ``(S,)`` is the last position that each position attends to.
    transformers' ``Trainer`` drops names that a model does not take, so this needs one of them.
    """
    columns = {"input_ids": streams.input_ids, "labels": streams.labels, "position_ids": streams.position_ids}
    wide = {name: torch.from_numpy(column.values.astype(np.int64)) for name, column in columns.items()}
    lengths = streams.input_ids.lengths.tolist()
    rows = zip(*(values.split(lengths) for values in wide.values()), strict=True)
    items = [dict(zip(wide, row, strict=True)) for row in rows]
    if layout.needs_mask:
        prefixes = streams.prefix_lengths if layout.attention == "prefix" else np.zeros(len(items), np.int64)
        for item, prefix in zip(items, prefixes.tolist(), strict=True):
            item["attention_mask"] = torch.arange(len(item["input_ids"])).clamp(min=prefix - 1)
    return items


def collate_streams(items: Sequence[Mapping[str, Tensor]], pad: int) -> dict[str, Any]:
    """Make a batch of items, as ``Dataset.collate`` describes it."""
    if "attention_mask" in items[0]:
        return _side_by_side(items, pad)
    batch: dict[str, Any] = {name: torch.cat([item[name] for item in items]) for name in items[0]}
    edges = torch.cat([torch.nonzero(batch["position_ids"] == 0)[:, 0], torch.tensor([len(batch["position_ids"])])])
    longest = int(edges.diff().max()) if len(edges) > 1 else 0
    ends = edges.to(torch.int32)
    lengths = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": longest, "max_length_k": longest}
    return {**{name: values[None] for name, values in batch.items()}, **lengths, "use_cache": False}


def _side_by_side(items: Sequence[Mapping[str, Tensor]], pad: int) -> dict[str, Any]:
    """Pad items to ``(B, S)``, with a mask in which a position of padding attends to itself alone."""
    filler = {"input_ids": pad, "labels": IGNORED}
    batch: dict[str, Any] = {
        name: pad_sequence([item[name] for item in items], batch_first=True, padding_value=filler.get(name, 0))
        for name in items[0]
    }
    places = torch.arange(batch["input_ids"].shape[1])
    first, last = places - batch["position_ids"], batch["attention_mask"].maximum(places)
    mask = (places >= first[..., None]) & (places <= last[..., None])
    return {**batch, "attention_mask": mask[:, None], "use_cache": False}
