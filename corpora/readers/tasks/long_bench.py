"""LongBench: JSON lines of 21 data sets, one file each, in a folder or zip; LongBench-E's files end in ``_e``.

Source: Bai et al. 2023, "LongBench", appendix; the names of the fields were not checked against the files::

    {"_id": "...", "dataset": "qasper", "language": "en", "length": 3417, "context": "...", "input": "...",
     "answers": ["..."], "all_classes": null}
"""

from __future__ import annotations

from typing import Any

from corpora.readers.raw_fields import id_of, list_of, optional_text, require_text, require_texts
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask, text_key
from corpora.readers.task_files import json_lines


def parse(record: dict[str, Any], place: Place) -> RawTask:
    """Parse the document and the pair of a record."""
    document = RawDocument(text_key(require_text(record, "context")), record["context"])
    classes = list_of(record, "all_classes", str) if record.get("all_classes") is not None else []
    pair = RawPair(
        pair_id=id_of(record, "_id"),
        documents=(document.key,),
        query=optional_text(record, "input"),
        targets=tuple(require_texts(record, "answers")),
        options=tuple(classes) or None,
        split="test",
        attributes={
            "subset": require_text(record, "dataset"),
            **{name: record[name] for name in ("language", "length") if record.get(name) is not None},
        },
    )
    return RawTask([document], [pair])


READER = json_lines(parse)
