"""Text to `.bin` and `.idx` as Megatron-LM's preprocess_data.py makes them, restated without its options.

A pool tokenises lines of JSONL one by one with Hugging Face's `tokenizers`, 32 lines a message, and the parent adds
each document and the end's id to megatron-core's IndexedDatasetBuilder. Needs nothing of farspan; megatron-core has to
be importable.

    python benchmarks/megatron_pool.py TOKENIZER.json END_ID INPUT_FOLDER OUTPUT_PREFIX WORKERS
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Iterator

import numpy as np
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
from tokenizers import Tokenizer

LINES_A_MESSAGE = 32

tokenizer: Tokenizer


def main(path: str, end: str, source: str, prefix: str, workers: str) -> None:
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    with multiprocessing.Pool(int(workers), start, (path,)) as pool:
        last = int(end)
        for ids in pool.imap(encode, lines(source), LINES_A_MESSAGE):
            builder.add_document([*ids, last], [len(ids) + 1])
    builder.finalize(f"{prefix}.idx")


def lines(folder: str) -> Iterator[str]:
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            yield from file


def start(path: str) -> None:
    global tokenizer
    tokenizer = Tokenizer.from_file(path)


def encode(line: str) -> list[int]:
    ids: list[int] = tokenizer.encode(json.loads(line)["text"], add_special_tokens=False).ids
    return ids


if __name__ == "__main__":
    main(*sys.argv[1:])
