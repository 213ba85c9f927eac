"""Lines of Python that open an export in the trainer it is made for; ``FOLDER`` stands for its folder."""

from __future__ import annotations

from collections.abc import Mapping

from corpora.storage.manifest import Manifest

_LINES: Mapping[str, str] = {
    "megatron": """\
import glob
from megatron.core.datasets.indexed_dataset import IndexedDataset

prefixes = sorted(path[:-4] for path in glob.glob("FOLDER/*.bin"))  # --data-path takes them, too
data = [IndexedDataset(prefix) for prefix in prefixes]""",
    "fairseq": """\
import glob
from fairseq.data.indexed_dataset import MMapIndexedDataset

data = [MMapIndexedDataset(path[:-4]) for path in sorted(glob.glob("FOLDER/*.bin"))]""",
    "mds": """\
from streaming import StreamingDataset

rows = StreamingDataset(local="FOLDER", shuffle=False, batch_size=1)""",
    "llm-foundry": """\
from llmfoundry.data.text_data import StreamingTextDataset

rows = StreamingTextDataset(tokenizer=TOKENIZER, max_seq_len={length}, local="FOLDER", batch_size=1)""",
    "olmo": """\
import glob
import os
import numpy as np
from olmo_core.data import NumpyFSLDataset

paths = sorted(glob.glob("FOLDER/*.npy"))
rows = NumpyFSLDataset(
    *paths, sequence_length={length}, dtype=np.{dtype}, vocab_size={vocab_size},
    eos_token_id={eos}, pad_token_id={pad}, generate_doc_lengths=True,
    label_mask_paths=[os.path.join("FOLDER/label_masks", os.path.basename(path)) for path in paths],
)""",
    "datatrove": """\
from datatrove.utils.dataset import DatatroveFolderDataset

rows = DatatroveFolderDataset("FOLDER", seq_len={length}, token_size={width}, return_positions=True)""",
    "litdata": """\
from litdata import StreamingDataset
from litdata.streaming.item_loader import TokensLoader

rows = StreamingDataset("FOLDER", item_loader=TokensLoader(block_size={length} + 1), shuffle=False)""",
    "parquet": """\
from datasets import load_dataset

rows = load_dataset("FOLDER", split="train")""",
    "megatron-bridge": """\
from megatron.bridge.data.datasets.packed_parquet import GPTSFTPackedParquetDataset

rows = GPTSFTPackedParquetDataset("FOLDER/part-*.idx.parquet", tokenizer=TOKENIZER)""",
}


def load_export(manifest: Manifest) -> str:
    """Return the lines for the format of an export, with its own ids and lengths."""
    config = manifest.config
    special = (config["eos_id"], config["pad_id"], *manifest.special_tokens.values())
    return _LINES[config["to"]].format(
        length=config["length"] or "LENGTH",
        dtype=config["dtype"],
        width={"uint8": 1, "uint16": 2}.get(config["dtype"], 4),
        vocab_size=max(manifest.tokenizer["vocab_size"], *(1 + number for number in special if number is not None)),
        eos=config["eos_id"],
        pad=config["eos_id"] if config["pad_id"] is None else config["pad_id"],
    )
