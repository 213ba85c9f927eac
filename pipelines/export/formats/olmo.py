"""``.npy`` files of OLMo-core: ids without any header, beside ``.csv.gz`` with the first and last id of each document.

``label_masks/`` has a bool for each id, True for targets. OLMo-core looks it up by the target, not by the position that
predicts it.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pyarrow.csv

from pipelines.export.format import Entry, Format, Part
from pipelines.export.items import Items


def _write(part: Part, batches: Iterable[Items]) -> Sequence[Entry]:
    starts, total = [], 0
    with ExitStack() as stack:
        masks = stack.enter_context(part.create(".npy", "label_masks"))
        file = stack.enter_context(part.create(".npy"))
        for items in batches:
            file.write(items.tokens.values.data)
            masks.write((np.ones(len(items.tokens.values), bool) if items.loss is None else items.loss).data)
            starts.append(total + document_starts(items))
            total += len(items.tokens.values)
    first = np.concatenate(starts)
    with part.create(".csv.gz") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as compressed:
        table = pa.table({"start": first, "end": np.append(first[1:], total)})
        pyarrow.csv.write_csv(table, compressed, pyarrow.csv.WriteOptions(include_header=False))
    return ()


def document_starts(items: Items) -> np.ndarray:
    """Return where documents begin in the ids of all items, ``(documents,)`` int64."""
    starts: np.ndarray = items.starts.values + np.repeat(items.tokens.offsets[:-1], items.starts.lengths)
    return starts


OLMO = Format(_write, {"uint8": 2**8, "uint16": 2**16, "uint32": 2**32}, room=0, loss=True, bounded=True)
