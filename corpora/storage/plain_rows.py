"""Rows of shards as plain Python values, and artefacts as text, for people who look at them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from corpora.printing import counted, total
from corpora.storage.manifest import Manifest


def plain_row(batch: pa.RecordBatch, row: int) -> dict[str, Any]:
    """Return a row by column: lists of numbers as read-only numpy arrays, all else as Python objects, null as None."""
    return {name: _plain(batch.column(name)[row]) for name in batch.schema.names}


def _plain(value: pa.Scalar) -> Any:
    kind = value.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if is_list and value.is_valid and pa.types.is_primitive(kind.value_type):
        return np.asarray(value.values)
    return value.as_py()


def describe(kind: str, folder: str, manifest: Manifest, schema: pa.Schema | None) -> str:
    """Return folder, size, totals and columns of an artefact, a line each."""
    rows = sum(shard.rows for shard in manifest.shards)
    size = f"{counted(rows, 'row')} in {counted(len(manifest.shards), 'shard')}"
    totals = ", ".join(total(number, name) for name, number in manifest.totals.items() if not name.startswith("max_"))
    lines = [f"{kind}({folder!r}): {size}", totals and f"  totals: {totals}"]
    if schema is not None:
        lines.append(f"  columns: {', '.join(schema.names)}")
    return "\n".join(filter(None, lines))
