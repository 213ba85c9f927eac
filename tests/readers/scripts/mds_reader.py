"""Read MDS shards with mosaicml-streaming, in batches of a DataLoader."""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from streaming import MDSWriter, StreamingDataset

folder, arguments, out = sys.argv[1:]
options = json.loads(arguments)
data = StreamingDataset(local=folder, shuffle=False, batch_size=4)
samples = [sample for batch in torch.utils.data.DataLoader(data, batch_size=4, collate_fn=list) for sample in batch]
if "tokens" in samples[0]:  # the column of llm-foundry
    np.savez(out, tokens=np.stack([sample["tokens"] for sample in samples]))
    sys.exit()
index = json.loads(Path(folder, "index.json").read_text())["shards"][0]
columns = dict(zip(index["column_names"], index["column_encodings"], strict=True))
with tempfile.TemporaryDirectory() as place:
    with MDSWriter(out=f"{place}/written", columns=columns) as writer:
        for sample in samples[: index["samples"]]:
            writer.write({**sample, "length": np.uint32(sample["length"])})
    written = Path(place, "written", "shard.00000.mds").read_bytes()
same = written == Path(folder, index["raw_data"]["basename"]).read_bytes()
np.savez(
    out,
    tokens=np.concatenate([sample["input_ids"] for sample in samples]),
    lengths=[sample["length"] for sample in samples],
    indices=np.concatenate([sample["indices"] for sample in samples]),
    counts=[len(sample["indices"]) for sample in samples],
    domains=[sample["domain"] for sample in samples],
    mask=np.concatenate([sample["mask"] for sample in samples]) if "mask" in columns else [],
    same=same,
)
