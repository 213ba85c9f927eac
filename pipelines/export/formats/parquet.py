"""Parquet files with the columns of transformers and TRL, and those of Megatron-Bridge's packed sequences.

- ``parquet``: ``input_ids``, ``seq_lengths`` (TRL's lengths of packed documents) and, for masks, ``labels``.
- ``megatron-bridge``: ``input_ids``, ``loss_mask`` and ``seq_start_id``. Bridge looks the mask up by the position that
  predicts, so a document's last position has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpora.storage.ragged import Ragged
from objectives.api.examples import IGNORED
from pipelines.export.format import Entry, Format, Items, Part
from pipelines.export.formats.flat import document_starts


def _write(part: Part, batches: Iterable[Items], columns: Callable[[Items], pa.Table], suffix: str) -> Sequence[Entry]:
    with part.create(suffix) as file:
        writer = None
        for items in batches:
            table = columns(items)
            writer = writer or pq.ParquetWriter(
                pa.PythonFile(file, "w"), table.schema, compression="zstd", use_dictionary=False
            )
            writer.write_table(table, row_group_size=max(len(table), 1))
        if writer:
            writer.close()
    return ()


def _transformers(items: Items) -> pa.Table:
    columns = {"input_ids": _lists(items.tokens, items.tokens.values.dtype)}
    if items.labels is not None:
        columns["labels"] = _lists(items.labels, np.int32)
        return pa.table(columns)
    if items.loss is not None:
        columns["labels"] = _lists(
            Ragged(np.where(items.loss, items.tokens.values, IGNORED), items.tokens.offsets), np.int32
        )
    columns["seq_lengths"] = _lists(
        Ragged(np.diff(document_starts(items), append=len(items.tokens.values)), items.starts.offsets), np.int32
    )
    return pa.table(columns)


def _bridge(items: Items) -> pa.Table:
    targets = np.ones(len(items.tokens.values), bool) if items.loss is None else items.loss.copy()
    targets[document_starts(items)] = False  # no position of the same document predicts its first id
    predicting = Ragged(np.append(targets[1:], False), items.tokens.offsets)
    return pa.table(
        {
            "input_ids": _lists(items.tokens, np.int32),
            "loss_mask": _lists(predicting, np.int8),
            "seq_start_id": _lists(items.starts, np.int32),
        }
    )


def _lists(rows: Ragged, dtype: np.typing.DTypeLike) -> pa.Array:
    kind = pa.from_numpy_dtype(np.dtype(dtype))
    return Ragged(rows.values.astype(dtype, copy=False), rows.offsets).to_arrow(pa.list_(kind))


PARQUET = Format(
    partial(_write, columns=_transformers, suffix=".parquet"), {"int32": 2**31, "int64": 2**63}, loss=True, pairs=True
)
MEGATRON_BRIDGE = Format(partial(_write, columns=_bridge, suffix=".idx.parquet"), {"int32": 2**31}, loss=True)
