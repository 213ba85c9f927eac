"""``.ds`` files of datatrove and nanotron: ids, document ends in ``.ds.index``, a bool for each id in ``.ds.loss``.

Readers cut a file into disjoint windows of one id more than the sequence length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack

import numpy as np

from pipelines.export.format import Entry, Format, Part
from pipelines.export.formats.olmo import document_starts
from pipelines.export.items import Items


def _write(part: Part, batches: Iterable[Items]) -> Sequence[Entry]:
    starts, total = [], 0
    with ExitStack() as stack:
        losses = stack.enter_context(part.create(".ds.loss"))
        file = stack.enter_context(part.create(".ds"))
        for items in batches:
            file.write(items.tokens.values.data)
            losses.write((np.ones(len(items.tokens.values), bool) if items.loss is None else items.loss).data)
            starts.append(total + document_starts(items))
            total += len(items.tokens.values)
    with part.create(".ds.index") as index:
        index.write(np.append(np.concatenate(starts)[1:], total).astype("<u8").data)
    with part.create(".ds.metadata") as lines:
        lines.write(f"{part.vocabulary}|{np.dtype(part.dtype).itemsize}\n{total}\n{total:,} tokens".encode())
    return ()


DATATROVE = Format(_write, {"uint16": 2**16, "uint32": 2**32}, room=1, loss=True, bounded=True)
