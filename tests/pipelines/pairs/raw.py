"""Raw data of the published layouts with invented content, and jobs on it."""

import random
from pathlib import Path
from typing import Any

from corpora.readers.options import PairFields
from pipelines.documents.inputs import Input
from pipelines.engine.job import Job
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.pairs.job import plan
from pipelines.pairs.options import Pairs, RawPairs
from tests.corpora.readers.tasks import write_lines

_WORDS = "quick brown fox jumps over lazy dogs while seven wizards observe strange lights".split()


def words(draw: random.Random, count: int) -> str:
    return " ".join(draw.choices(_WORDS, k=count)) + "."


def write_scrolls(folder: Path, documents: int = 6) -> Path:
    """Two tasks of SCROLLS: several questions a document, of which every second has two answers."""
    draw = random.Random(0)
    for task in ("qasper", "gov_report"):
        for split in ("train", "validation", "test"):
            records = []
            for number in range(documents):
                text = f"{words(draw, 40)}\n\n{words(draw, 30)}"
                for question in range(1 if task == "gov_report" else 3):
                    query = "" if task == "gov_report" else f"{words(draw, 5)[:-1]}?\n\n"
                    name = f"{task}_{split}_{number}_{question}"
                    for answer in range(1 + question % 2):
                        output = None if split == "test" else words(draw, 6)
                        records.append({"id": name, "pid": f"{name}_{answer}", "input": query + text, "output": output})
            write_lines(folder / task / f"{split}.jsonl", records)
    return folder


def pairs_job(raw: str, documents: str, output: str, read: dict | None = None, **options: Any) -> Job:
    """The job that ``farspan pairs --format scrolls`` starts."""
    text = RawPairs(**{"input": (raw,), "format": "scrolls", "fields": PairFields(), **(read or {})})
    inputs = tuple(Input.parse(pattern, text.read) for pattern in text.input)
    return plan(Pairs(inputs=inputs, documents=documents, output=output, **options))


def build(*arguments: Any, workers: int = 1, **options: Any):
    return run_job(pairs_job(*arguments, **options), Engine(workers=workers))


def pairs_job_of_reference(raw: str, documents: str, output: str) -> Job:
    """The job of the reference pairs, for a process of its own."""
    return pairs_job(raw, documents, output, task_bytes=4_000)


def pairs_job_of_command(given: str, documents: str, output: str) -> Job:
    """The job of ``farspan pairs --input GIVEN --format scrolls``, for a process of its own."""
    return pairs_job(given, documents, output)
