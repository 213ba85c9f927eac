"""A tokenizer, raw text, and the documents made of it."""

import gzip
import json
import random

import pytest

from tests.pipelines.documents.jobs import build

WORDS = "the quick brown fox jumps over a lazy dog. Naïve wizards drink café au lait! 世界 is wide; isn't it?".split()


@pytest.fixture(scope="module")
def texts():
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 60))) for _ in range(400)]


@pytest.fixture(scope="module")
def raw(texts, tmp_path_factory):
    """400 good records in two plain files and a compressed one."""
    folder = tmp_path_factory.mktemp("raw")
    lines = [json.dumps({"text": text, "url": f"u{i}"}, ensure_ascii=i % 2 == 0) for i, text in enumerate(texts)]
    (folder / "a.jsonl").write_text("\n".join(lines[:150]) + "\n")
    (folder / "b.jsonl").write_text("\n".join(lines[150:300]))
    with gzip.open(folder / "c.json.gz", "wt") as file:
        file.write("\n".join(lines[300:]))
    return str(folder)


@pytest.fixture(scope="module")
def reference(raw, tokenizer, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("reference") / "documents")
    build(raw, folder, tokenizer, held_out=0.1, task_bytes=20_000)
    return folder
