"""WikiHop: choosing the object of a Wikidata statement among candidates, given several paragraphs.

Source: Welbl et al. 2018, "Constructing Datasets for Multi-hop Reading Comprehension Across Documents"; fields as in
the card of QAngaroo on the hub. One JSON array in each of ``train.json`` and ``dev.json``; the test set is not public::

    [{"id": "WH_train_0", "query": "country_of_citizenship some name", "answer": "...",
      "candidates": ["..."], "supports": ["..."]}]
"""

from __future__ import annotations

from typing import Any

from corpora.readers.raw_fields import id_of, require_text, require_texts
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask, text_key
from corpora.readers.records import BadRecord
from corpora.readers.task_files import json_records


def parse(record: dict[str, Any], place: Place) -> RawTask:
    """Parse a query and its supports."""
    documents = [RawDocument(text_key(text), text) for text in require_texts(record, "supports")]
    candidates = tuple(require_texts(record, "candidates"))
    answer = require_text(record, "answer")
    if answer not in candidates:
        raise BadRecord("unknown_label", f"the answer {answer[:100]!r} is not among the {len(candidates)} candidates")
    pair = RawPair(
        pair_id=id_of(record, "id"),
        documents=tuple(document.key for document in documents),
        query=require_text(record, "query"),
        targets=(answer,),
        options=candidates,
    )
    return RawTask(documents, [pair])


READER = json_records(parse, r"(train|dev)\.json")
