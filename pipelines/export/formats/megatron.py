"""``.bin`` and ``.idx`` files of Megatron-LM and NeMo, and of fairseq.

``.bin`` has the ids of all items. ``.idx`` has, little-endian: a magic word, u64 1, u8 code of the type, u64 number of
items, for Megatron u64 number of documents + 1, i32 lengths, i64 byte offsets and, for Megatron, the i64 first item of
each document. Here each item is a document to the index: Megatron's ``GPTDataset`` shuffles items.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from corpora.errors import FarspanError
from pipelines.export.format import Entry, Format, Part
from pipelines.export.items import Items

_MAGIC = b"MMIDIDX\0\0"
_CODES = {"int32": 4, "uint16": 8}


def _write(part: Part, batches: Iterable[Items], documents: bool) -> Sequence[Entry]:
    counts = []
    with part.create(".bin") as file:
        for items in batches:
            file.write(items.tokens.values.data)
            counts.append(items.tokens.lengths)
    lengths = np.concatenate(counts)
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


# Megatron takes 16 bits for vocabularies under 65,500
MEGATRON = Format(partial(_write, documents=True), {"uint16": 65_499, "int32": 2**31}, room=0, bounded=True)
FAIRSEQ = Format(partial(_write, documents=False), {"uint16": 65_499, "int32": 2**31}, room=0, bounded=True)
