"""Reading of data sets of tasks: small files of the published layout, with invented content."""

import json
from dataclasses import replace
from pathlib import Path

from corpora.readers import ReadOptions, RecordBlock
from corpora.readers.options import PAIRS_OF
from corpora.readers.raw_tasks import RawPair
from corpora.readers.selection import plan_ranges, read_records
from tests.corpora.readers import reasons


def write_lines(path: Path, records: list[dict]) -> Path:
    """Write JSON lines, making the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write_json(path: Path, value: object) -> Path:
    """Write a JSON document."""
    path.write_text(json.dumps(value))
    return path


def read_documents(path: Path, options: ReadOptions, cut: int = 1 << 30) -> dict[str, str]:
    """Key -> text of the documents of a file, which is read in ranges of ``cut`` bytes; no record is rejected."""
    blocks = _blocks(path, options, cut)
    assert not any(block.rejects for block in blocks)
    return {key: text for block in blocks for key, text in zip(block.ids or (), block.texts, strict=True)}


def read_pairs(path: Path, options: ReadOptions, cut: int = 1 << 30, rejected: int = 0) -> list[RawPair]:
    """The pairs of a file, which is read in ranges of ``cut`` bytes; so many others are rejected."""
    blocks = _blocks(path, _of_pairs(options), cut)
    assert sum(len(block.rejects) for block in blocks) == rejected
    return [RawPair.from_json(text) for block in blocks for text in block.texts]


def rejected_pairs(path: Path, options: ReadOptions, cut: int = 1 << 30) -> list[tuple[str, str]]:
    """Place and reason of the records of a file that are rejected when its pairs are read."""
    return [rejected for block in _blocks(path, _of_pairs(options), cut) for rejected in reasons(block)]


def read_reasons(path: Path, options: ReadOptions) -> list[str]:
    """The reasons alone."""
    return [reason for _, reason in rejected_pairs(path, options)]


def _blocks(path: Path, options: ReadOptions, cut: int) -> list[RecordBlock]:
    return [block for piece in plan_ranges(str(path), options, cut) for block in read_records(piece, options)]


def _of_pairs(options: ReadOptions) -> ReadOptions:
    return replace(options, format=f"{PAIRS_OF}{options.format}")
