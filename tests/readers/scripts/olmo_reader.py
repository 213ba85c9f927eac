"""Read ``.npy`` files with OLMo-core: instances in collated batches, and document boundaries."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from olmo_core.data import DataCollator, NumpyFSLDataset
from olmo_core.data.utils import iter_document_indices

folder, arguments, out = sys.argv[1:]
options = json.loads(arguments)
paths = sorted(Path(folder).glob("*.npy"))
masks = [path.parent / "label_masks" / path.name for path in paths]
dtype = getattr(np, options["dtype"])
local, listed, first = [], [], 0
for path in paths:
    found = list(iter_document_indices(path, eos_token_id=options["eos"], dtype=dtype))
    named = list(iter_document_indices(path, use_array_if_local=False))
    local += [(start + first, end + first) for start, end in found]
    listed += [(start + first, end + first) for start, end in named]
    first += path.stat().st_size // np.dtype(dtype).itemsize
result: dict[str, Any] = {"local": np.array(local), "listed": np.array(listed)}
if options.get("length"):
    data = NumpyFSLDataset(
        *paths,
        sequence_length=options["length"],
        pad_token_id=options["pad"],
        eos_token_id=options["eos"],
        vocab_size=options["vocab_size"],
        dtype=dtype,
        generate_doc_lengths=True,
        label_mask_paths=masks,
    )
    data.prepare()
    collate = DataCollator(pad_token_id=options["pad"])
    batches = [
        collate([data[row] for row in range(begin, min(begin + 4, len(data)))]) for begin in range(0, len(data), 4)
    ]
    result["tokens"] = np.concatenate([batch["input_ids"].numpy().ravel() for batch in batches])
    result["mask"] = np.concatenate([batch["label_mask"].numpy().ravel() for batch in batches])
    doc_lens = [lens[lens > 0].numpy() for batch in batches for lens in batch["doc_lens"]]
    result |= {"doc_lens": np.concatenate(doc_lens), "counts": np.array([len(lens) for lens in doc_lens])}
else:
    result["tokens"] = np.concatenate([np.memmap(path, dtype, "r") for path in paths])
np.savez(out, **result)
