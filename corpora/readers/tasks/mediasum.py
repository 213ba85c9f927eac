"""MediaSum: a summary of each interview, about the documents of the format of the same name.

Source and file as in ``corpora.readers.formats.mediasum``. ``train_val_test_split.json`` beside it, ``{"train": [id],
"val": [id], "test": [id]}``, gives the splits; without it, every interview is in the split of the file's name. An
interview that no split names is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from corpora.readers import json_array
from corpora.readers.blocks import BlockBuilder
from corpora.readers.raw_fields import id_of, list_of, require_text
from corpora.readers.raw_tasks import Place, RawPair, RawTask
from corpora.readers.records import BadRecord, Range
from corpora.readers.task_files import json_object, line_adder, task_reader

SPLITS = "train_val_test_split.json"


def parse(record: dict[str, Any], place: Place, splits: Mapping[str, str] | None = None) -> RawTask:
    """Parse the summary of an interview; ``splits`` has the split of each id."""
    key = id_of(record, "id")
    if splits is not None and key not in splits:
        raise BadRecord("unknown_split", f"{SPLITS} names no split of {key}")
    pair = RawPair(
        pair_id=key,
        documents=(place.key,),
        targets=(require_text(record, "summary"),),
        split=splits[key] if splits else None,
    )
    return RawTask([], [pair])


def read(piece: Range, block: BlockBuilder) -> Iterator[int]:
    """Add the pair of each interview."""
    return json_array.read(piece, block, line_adder(partial(parse, splits=_splits(block.place("0")))))


def _splits(place: Place) -> dict[str, str] | None:
    try:
        listed = json_object(place.read_beside(SPLITS))
    except BadRecord as bad:
        if bad.reason == "missing_file":
            return None
        raise
    return {key: split for split in listed for key in list_of(listed, split, str)}


READER = task_reader(json_array.plan, read, r"(?!train_val_test_split).*\.(json|jsonl)", keyed_by_place=True)
