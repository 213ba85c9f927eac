"""datatrove's tokenise pipeline on a folder of JSONL; runs in datatrove's own environment and needs nothing of farspan.

python benchmarks/datatrove_pipeline.py TOKENIZER.json INPUT_FOLDER OUTPUT_FOLDER WORKERS
"""

from __future__ import annotations

import os
import sys

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer


def main(tokenizer: str, source: str, output: str, workers: str) -> None:
    LocalPipelineExecutor(
        pipeline=[
            JsonlReader(source, text_key="text"),
            DocumentTokenizer(os.path.join(output, "tokens"), tokenizer, shuffle_documents=False),
        ],
        tasks=len(os.listdir(source)),
        workers=int(workers),
        logging_dir=os.path.join(output, "logs"),
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
