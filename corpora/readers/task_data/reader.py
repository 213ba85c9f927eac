"""Readers for data sets of tasks: of their documents, or of their pairs as JSON (``pairs:NAME``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module

from corpora.errors import FarspanError
from corpora.readers.blocks import BlockBuilder
from corpora.readers.options import PAIRS_OF
from corpora.readers.reader import Reader
from corpora.readers.records import Cut, Range
from corpora.readers.task_data.declaration import Place, RawTask, TaskData, text_key
from corpora.storage.files import Files

_PICKLES = (".pt", ".pth", ".pkl", ".pickle")


def data_set(name: str) -> TaskData:
    """Return the declaration of one of ``DATA_SETS``; imports its module on first use."""
    found: TaskData = import_module(f"corpora.readers.tasks.{name.replace('-', '_')}").DATA
    return found


def task_reader(format: str) -> Reader:
    """Return the reader of a data set's documents, or of its pairs if ``format`` has the prefix ``pairs:``."""
    data = data_set(format.removeprefix(PAIRS_OF))
    add = _add_pairs if format.startswith(PAIRS_OF) else None

    def plan(path: str, files: Files, target_bytes: int) -> list[Cut]:
        if path.lower().endswith(_PICKLES):
            raise FarspanError(f"{path}: a pickle, which can run code, is never loaded; save it again as JSON lines")
        return data.plan(path, files, target_bytes)

    def read(piece: Range, files: Files, block: BlockBuilder) -> Iterator[int]:
        return data.read(piece, files, block, partial(add, block) if add else _Documents(block))

    return Reader(
        plan,
        read,
        fields=lambda path, files: {},  # a data set names its own
        text_field=data.text_field,
        published=True,
        records=data.records,
        own_ids=True,
    )


class _Documents:
    """Adds each document of a range once."""

    def __init__(self, block: BlockBuilder) -> None:
        self._block = block
        self._seen: dict[str, str] = {}  # key -> hash of the text

    def __call__(self, place: Place, task: RawTask, raw: bytes) -> None:
        options = self._block.options
        for document in task.documents:
            text = text_key(document.text)
            before = self._seen.get(document.key)
            if before is None:
                self._seen[document.key] = text
                self._block.add(
                    place.key, {options.text_field: document.text, str(options.id_field): document.key}, raw
                )
            elif before == text:
                self._block.leave_out()
            else:
                detail = f"an earlier document of the file has the key {document.key!r} and another text"
                self._block.reject(place.key, "duplicate_id", raw, detail)


def _add_pairs(block: BlockBuilder, place: Place, task: RawTask, raw: bytes) -> None:
    """Add each pair as JSON, with the file's split if the record has none; reject the bad parts of the record."""
    options = block.options
    for bad in task.bad:
        block.reject(place.key, bad.reason, raw, str(bad))
    empty = {document.key for document in task.documents if not document.text.strip()}
    for number, pair in enumerate(task.pairs):
        key = place.key if len(task.pairs) == 1 else f"{place.key}.{number}"
        if found := [name for name in pair.documents if name in empty]:
            block.reject(key, "empty_document", raw, f"document {found[0]!r} has no text")
        elif not pair.documents:
            block.reject(key, "no_document", raw, f"pair {pair.pair_id!r} names no document")
        else:
            whole = pair if pair.split else replace(pair, split=place.split)
            block.add(key, {options.text_field: whole.to_json(), str(options.id_field): pair.pair_id}, raw)
