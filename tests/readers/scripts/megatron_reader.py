"""Read ``.bin`` and ``.idx`` files with megatron-core: IndexedDataset, then batches of GPTDataset."""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
from megatron.core.datasets.utils import Split


class Tokenizer:
    def __init__(self, eod, pad, vocab_size):
        self.eod, self.pad, self.vocab_size = eod, pad, vocab_size
        self.unique_identifiers = {"class": "Tokenizer"}


folder, arguments, out = sys.argv[1:]
options = json.loads(arguments)
tokens, lengths, loaded, positions, same = [], [], [], [], []
for path in sorted(Path(folder).glob("*.bin")):
    prefix = str(path.with_suffix(""))
    data = IndexedDataset(prefix)
    assert data.document_indices.tolist() == list(range(len(data) + 1))
    items = [data[index].copy() for index in range(len(data))]
    tokens += items
    lengths += data.sequence_lengths.tolist()
    with tempfile.TemporaryDirectory() as cache:
        copy = f"{cache}/copy"
        builder = IndexedDatasetBuilder(f"{copy}.bin", dtype=data.index.dtype)
        for item in items:
            builder.add_document(item, [len(item)])
        builder.finalize(f"{copy}.idx")
        same += [Path(prefix + end).read_bytes() == Path(copy + end).read_bytes() for end in (".bin", ".idx")]
        if length := options.get("length"):
            config = GPTDatasetConfig(
                random_seed=1,
                sequence_length=length,
                split="1,0,0",
                reset_position_ids=True,
                reset_attention_mask=False,
                eod_mask_loss=False,
                create_attention_mask=False,
                tokenizer=Tokenizer(options["eos"], options["pad"], options["vocab_size"]),
                path_to_cache=cache,
            )
            rows = GPTDataset(data, prefix, np.arange(len(data)), None, Split.train, config)
            for batch in torch.utils.data.DataLoader(rows, batch_size=4):
                loaded += list(batch["tokens"].numpy())
                positions += list(batch["position_ids"].numpy())
np.savez(
    out,
    tokens=np.concatenate(tokens),
    lengths=lengths,
    loaded=np.array(loaded),
    positions=np.array(positions),
    same=np.array(same),
)
