"""Chunks of litData's ``TokensLoader``: u32 number of items, u32 offsets, ids; ``index.json`` lists all chunks.

A chunk holds whole items, because readers drop what remains of a chunk after the last block.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.export.format import Entry, Format, Part
from pipelines.export.items import Items, split

_CHUNK_BYTES = 64_000_000
_CODES = {"uint16": 20, "int32": 16}  # of torch's types


def _write(part: Part, batches: Iterable[Items]) -> Sequence[Entry]:
    width = np.dtype(part.dtype).itemsize
    entries: list[dict[str, Any]] = []
    for items in split(batches, lambda items: items.tokens.lengths * width + 4, _CHUNK_BYTES):
        suffix = f".{len(entries):05d}.bin"
        lengths = items.tokens.lengths
        offsets = np.append(0, np.cumsum(lengths)) * width + 4 * (len(lengths) + 2)
        with part.create(suffix) as file:
            file.write(np.append(len(lengths), offsets).astype("<u4").data)
            file.write(items.tokens.values.data)
        info = part.files[part.name + suffix]
        entries.append(
            {
                "chunk_bytes": info.bytes,
                "chunk_size": len(lengths),
                "dim": int(lengths.sum()),
                "filename": part.name + suffix,
                "dtype": part.dtype,
            }
        )
    return entries


def _index(entries: Sequence[Entry]) -> Mapping[str, bytes]:
    dtype = next((entry["dtype"] for entry in entries), "int32")
    chunks = [{name: value for name, value in entry.items() if name != "dtype"} for entry in entries]
    config = {
        "chunk_bytes": _CHUNK_BYTES,
        "chunk_size": None,
        "compression": None,
        "data_format": [f"no_header_tensor:{_CODES[dtype]}"],
        "data_spec": None,
        "encryption": None,
        "item_loader": "TokensLoader",
    }
    return {"index.json": json.dumps({"chunks": chunks, "config": config}, sort_keys=True).encode()}


LITDATA = Format(_write, {"uint16": 2**16, "int32": 2**31}, room=1, index=_index)
