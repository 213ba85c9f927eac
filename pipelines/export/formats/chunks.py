"""Files of limited size that ``index.json`` lists: shards of MosaicML Streaming (MDS), and chunks of litData.

Both begin with u32 number of items and u32 offsets of the items and of the end.

- ``mds``, ``llm-foundry``: a JSON header and samples follow. A sample has the u32 sizes of its columns of variable
  size, then the columns, both sorted by name. An array has a byte for the number of dimensions and the width of the
  shape, the shape and the values. ProLong's columns are ``input_ids``, ``indices``, ``length``, ``domain`` and
  ``mask``, llm-foundry's ``tokens``.
- ``litdata``: ids follow, for ``TokensLoader``. A chunk holds whole items, because readers drop what remains of a chunk
  after the last block.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from pipelines.export.format import Entry, Format, Items, Part, split

_SHARD_BYTES = 1 << 26  # of MDS
_CHUNK_BYTES = 64_000_000  # of litData
_CODES = {"uint16": 20, "int32": 16}  # litData's, of torch's types

Columns: TypeAlias = tuple[Mapping[str, str], Iterator[list[bytes]]]
"""Encodings of columns by name, ascending, and the columns of each sample."""


def _write_file(part: Part, suffix: str, header: bytes, sizes: np.ndarray, items: bytes | memoryview) -> int:
    """Write a file of items of the given ``(n,)`` sizes in bytes, and return its size."""
    offsets = np.append(0, np.cumsum(sizes)) + 4 * (len(sizes) + 2) + len(header)
    with part.create(suffix) as file:
        file.write(np.append(len(sizes), offsets).astype("<u4").data)
        file.write(header)
        file.write(items)
    return part.files[part.name + suffix].bytes


def _write_mds(part: Part, batches: Iterable[Items], columns: Callable[[Items, str], Columns]) -> Sequence[Entry]:
    entries: list[dict[str, Any]] = []
    width = np.dtype(part.dtype).itemsize
    for items in split(
        batches, lambda items: items.tokens.lengths * (width + 1) + items.starts.lengths * 8, _SHARD_BYTES
    ):
        encodings, samples = columns(items, part.dtype)
        header = _header(encodings)
        stored = [_sample(sample, header["column_sizes"]) for sample in samples]
        suffix, sizes = f".{len(entries):05d}.mds", np.array([len(sample) for sample in stored])
        size = _write_file(part, suffix, json.dumps(header, sort_keys=True).encode(), sizes, b"".join(stored))
        raw = {"basename": part.name + suffix, "bytes": size, "hashes": {}}
        entries.append({**header, "raw_data": raw, "samples": len(stored), "zip_data": None})
    return entries


def _header(encodings: Mapping[str, str]) -> dict[str, Any]:
    return {
        "column_encodings": list(encodings.values()),
        "column_names": list(encodings),
        "column_sizes": [4 if encoding == "uint32" else None for encoding in encodings.values()],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": _SHARD_BYTES,
        "version": 2,
    }


def _sample(columns: Sequence[bytes], sizes: Sequence[int | None]) -> bytes:
    """Put the sizes of the columns of variable size before all columns."""
    variable = [len(column) for column, size in zip(columns, sizes, strict=True) if size is None]
    return b"".join([np.array(variable, "<u4").tobytes(), *columns])


def _prolong(items: Items, dtype: str) -> Columns:
    """Encode the columns of ProLong for each item; items are rows or documents, so this is no loop over tokens."""
    encodings = {"domain": "str", "indices": "ndarray:uint32", "input_ids": f"ndarray:{dtype}", "length": "uint32"}
    encodings |= {} if items.loss is None else {"mask": "ndarray:uint8"}
    tokens, domains = items.tokens.compact(), [] if items.domains is None else items.domains.to_pylist()

    def samples() -> Iterator[list[bytes]]:
        for row, (length, domain) in enumerate(zip(tokens.lengths.tolist(), domains, strict=True)):
            starts = items.starts[row]
            intervals = np.stack([starts, np.append(starts[1:], length)], 1)
            columns = [domain.encode(), _array(intervals.astype("<u4")), _ids(tokens[row], dtype)]
            columns.append(np.uint32(length).tobytes())
            if items.loss is not None:
                columns.append(_array(items.loss[tokens.offsets[row] : tokens.offsets[row + 1]].view(np.uint8)))
            yield columns

    return encodings, samples()


def _foundry(items: Items, dtype: str) -> Columns:
    return {"tokens": f"ndarray:{dtype}"}, ([_ids(items.tokens[row], dtype)] for row in range(len(items)))


def _ids(ids: np.ndarray, dtype: str) -> bytes:
    return _array(ids.astype(np.dtype(dtype).newbyteorder("<"), copy=False))


def _array(values: np.ndarray) -> bytes:
    """Encode an array whose type the header has."""
    width = int(np.searchsorted([2**8, 2**16, 2**32], max(values.shape), side="right"))
    shape = np.array(values.shape, f"<u{1 << width}").tobytes()
    return bytes([values.ndim << 2 | width]) + shape + values.tobytes()


def _index_mds(entries: Sequence[Entry]) -> Mapping[str, bytes]:
    return {"index.json": json.dumps({"shards": entries, "version": 2}, sort_keys=True).encode()}


def _write_litdata(part: Part, batches: Iterable[Items]) -> Sequence[Entry]:
    width = np.dtype(part.dtype).itemsize
    entries: list[dict[str, Any]] = []
    for items in split(batches, lambda items: items.tokens.lengths * width + 4, _CHUNK_BYTES):
        suffix, lengths = f".{len(entries):05d}.bin", items.tokens.lengths
        entries.append(
            {
                "chunk_bytes": _write_file(part, suffix, b"", lengths * width, items.tokens.values.data),
                "chunk_size": len(lengths),
                "dim": int(lengths.sum()),
                "filename": part.name + suffix,
                "dtype": part.dtype,
            }
        )
    return entries


def _index_litdata(entries: Sequence[Entry]) -> Mapping[str, bytes]:
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


_DTYPES = {"uint16": 2**16, "uint32": 2**32, "int32": 2**31, "int64": 2**63}

MDS = Format(partial(_write_mds, columns=_prolong), _DTYPES, loss=True, domains=True, index=_index_mds)
# llm-foundry makes tensors of the arrays, and torch has few operations on unsigned types
LLM_FOUNDRY = Format(
    partial(_write_mds, columns=_foundry), {"int32": 2**31, "int64": 2**63}, room=0, bounded=True, index=_index_mds
)
LITDATA = Format(_write_litdata, {"uint16": 2**16, "int32": 2**31}, room=1, index=_index_litdata)
