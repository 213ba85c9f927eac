"""Shards of MosaicML Streaming (MDS), with the columns of ProLong: ``input_ids``, ``indices``, ``length``, ``mask``.

A shard has u32 number of samples, u32 offsets, a JSON header and samples. A sample has the u32 sizes of its columns of
variable size, then the columns, both sorted by name. An array has a byte for the number of dimensions and the width of
the shape, the shape and the values. ``index.json`` lists all shards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.export.format import Entry, Format, Part
from pipelines.export.items import Items
from pipelines.export.split import split

_SHARD_BYTES = 1 << 26


def _write(part: Part, batches: Iterable[Items]) -> Sequence[Entry]:
    header: dict[str, Any] = {}
    entries: list[dict[str, Any]] = []
    width = np.dtype(part.dtype).itemsize
    for items in split(
        batches, lambda items: items.tokens.lengths * (width + 1) + items.starts.lengths * 8, _SHARD_BYTES
    ):
        header = header or _header(part.dtype, items.loss is not None)
        text = json.dumps(header, sort_keys=True).encode()
        samples = list(_samples(items, np.dtype(part.dtype).newbyteorder("<")))
        offsets = np.append(0, np.cumsum([len(sample) for sample in samples])) + 4 * (len(samples) + 2) + len(text)
        suffix = f".{len(entries):05d}.mds"
        with part.create(suffix) as file:
            file.write(np.append(len(samples), offsets).astype("<u4").data)
            file.write(text)
            file.write(b"".join(samples))
        raw = {"basename": part.name + suffix, "bytes": part.files[part.name + suffix].bytes, "hashes": {}}
        entries.append({**header, "raw_data": raw, "samples": len(samples), "zip_data": None})
    return entries


def _header(dtype: str, masked: bool) -> dict[str, Any]:
    columns = {"indices": "ndarray:uint32", "input_ids": f"ndarray:{dtype}", "length": "uint32"}
    columns |= {"mask": "ndarray:uint8"} if masked else {}
    return {
        "column_encodings": list(columns.values()),
        "column_names": list(columns),
        "column_sizes": [4 if encoding == "uint32" else None for encoding in columns.values()],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": _SHARD_BYTES,
        "version": 2,
    }


def _samples(items: Items, dtype: np.dtype) -> Iterator[bytes]:
    """Yield each item as a sample; items are rows or documents, so this is no loop over tokens."""
    tokens = items.tokens.compact()
    for row, length in enumerate(tokens.lengths.tolist()):
        starts = items.starts[row]
        intervals = np.stack([starts, np.append(starts[1:], length)], 1)
        columns = [_array(intervals.astype("<u4")), _array(tokens[row].astype(dtype, copy=False))]
        mask = (
            []
            if items.loss is None
            else [_array(items.loss[tokens.offsets[row] : tokens.offsets[row + 1]].view(np.uint8))]
        )
        sizes = np.array([len(column) for column in columns + mask], "<u4").tobytes()
        yield b"".join([sizes, *columns, np.uint32(length).tobytes(), *mask])


def _array(values: np.ndarray) -> bytes:
    """Encode an array whose type the header has."""
    width = int(np.searchsorted([2**8, 2**16, 2**32], max(values.shape), side="right"))
    shape = np.array(values.shape, f"<u{1 << width}").tobytes()
    return bytes([values.ndim << 2 | width]) + shape + values.tobytes()


def _index(entries: Sequence[Entry]) -> Mapping[str, bytes]:
    return {"index.json": json.dumps({"shards": entries, "version": 2}, sort_keys=True).encode()}


MDS = Format(
    _write,
    {"uint16": 2**16, "uint32": 2**32, "int32": 2**31, "int64": 2**63},
    loss=True,
    index=_index,
)
