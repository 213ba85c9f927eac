"""Flat files of ids: those of Megatron-LM, NeMo and fairseq, of OLMo-core, and of datatrove and nanotron.

- ``megatron``, ``fairseq``: ``.bin`` has the ids of all items. ``.idx`` has, little-endian: a magic word, u64 1, u8
  code of the type, u64 number of items, for Megatron u64 number of documents + 1, i32 lengths, i64 byte offsets and,
  for Megatron, the i64 first item of each document. Here each item is a document to the index: Megatron's
  ``GPTDataset`` shuffles items.
- ``olmo``: ``.npy`` has ids without any header, beside ``.csv.gz`` with the first and last id of each document.
  ``label_masks/`` has a bool for each id, True for targets. OLMo-core looks it up by the target, not by the position
  that predicts it.
- ``datatrove``: ``.ds`` has ids, ``.ds.index`` document ends, ``.ds.loss`` a bool for each id. Readers cut a file into
  disjoint windows of one id more than the sequence length.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv

from corpora.errors import FarspanError
from pipelines.export.format import Entry, Format, Items, Part

_MAGIC = b"MMIDIDX\0\0"
_CODES = {"int32": 4, "uint16": 8}


def _write_ids(
    part: Part, batches: Iterable[Items], suffix: str, targets: tuple[str, str] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Write all ids; return the length of each item, and the edges of documents, ``(documents + 1,)``, both int64.

    A file with suffix and subfolder ``targets`` has a bool for each id.
    """
    lengths, starts, total = [], [], 0
    with part.create(*targets) if targets else nullcontext() as flags, part.create(suffix) as file:
        for items in batches:
            file.write(items.tokens.values.data)
            if flags:
                flags.write((np.ones(len(items.tokens.values), bool) if items.loss is None else items.loss).data)
            lengths.append(items.tokens.lengths)
            starts.append(total + document_starts(items))
            total += len(items.tokens.values)
    return np.concatenate(lengths), np.append(np.concatenate(starts), total)


def document_starts(items: Items) -> np.ndarray:
    """Return where documents begin in the ids of all items, ``(documents,)`` int64."""
    return items.starts.values + np.repeat(items.tokens.offsets[:-1], items.starts.lengths)


def _write_megatron(part: Part, batches: Iterable[Items], documents: bool) -> Sequence[Entry]:
    lengths, _ = _write_ids(part, batches, ".bin")
    if (longest := int(lengths.max())) > np.iinfo(np.int32).max:
        raise FarspanError(f"an item of {longest:,} ids is too long for an .idx file; export --unit rows of a corpus")
    ends = np.cumsum(lengths)
    with part.create(".idx") as file:
        file.write(_MAGIC + np.uint64(1).tobytes() + np.uint8(_CODES[part.dtype]).tobytes())
        file.write(np.array([len(lengths), len(lengths) + 1][: 1 + documents], "<u8").data)
        file.write(lengths.astype("<i4").data)
        file.write(((ends - lengths) * np.dtype(part.dtype).itemsize).astype("<i8").data)
        if documents:
            file.write(np.arange(len(lengths) + 1, dtype="<i8").data)
    return ()


def _write_olmo(part: Part, batches: Iterable[Items]) -> Sequence[Entry]:
    _, edges = _write_ids(part, batches, ".npy", (".npy", "label_masks"))
    with part.create(".csv.gz") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as compressed:
        table = pa.table({"start": edges[:-1], "end": edges[1:]})
        pyarrow.csv.write_csv(table, compressed, pyarrow.csv.WriteOptions(include_header=False))
    return ()


def _write_datatrove(part: Part, batches: Iterable[Items]) -> Sequence[Entry]:
    _, edges = _write_ids(part, batches, ".ds", (".ds.loss", ""))
    with part.create(".ds.index") as index:
        index.write(edges[1:].astype("<u8").data)
    with part.create(".ds.metadata") as lines:
        lines.write(f"{part.vocabulary}|{np.dtype(part.dtype).itemsize}\n{edges[-1]}\n{edges[-1]:,} tokens".encode())
    return ()


# Megatron takes 16 bits for vocabularies under 65,500
_MEGATRON = {"uint16": 65_499, "int32": 2**31}
MEGATRON = Format(partial(_write_megatron, documents=True), _MEGATRON, room=0, bounded=True)
FAIRSEQ = Format(partial(_write_megatron, documents=False), _MEGATRON, room=0, bounded=True)
OLMO = Format(_write_olmo, {"uint8": 2**8, "uint16": 2**16, "uint32": 2**32}, room=0, loss=True, bounded=True)
DATATROVE = Format(_write_datatrove, {"uint16": 2**16, "uint32": 2**32}, room=1, loss=True, bounded=True)
