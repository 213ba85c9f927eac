"""ZeroSCROLLS: ``validation.jsonl`` and ``test.jsonl`` of each of ten data sets, in folders or zips.

A record is that of SCROLLS with the positions of document and query in its input, in characters:
``document_start_index``, ``document_end_index`` and ``query_start_index``. The pair's query is the prompt without the
document: the instruction before it and the question after it. Source: Shaham et al. 2023, "ZeroSCROLLS", section 3; the
names of the fields were not checked against the files of ``tau/zero_scrolls``.
"""

from __future__ import annotations

from typing import Any

from corpora.readers.records import BadRecord
from corpora.readers.task_data.declaration import Place, RawDocument, RawPair, RawTask, text_key
from corpora.readers.task_data.files import json_lines, text_of
from corpora.readers.tasks.scrolls import subset_of

SUBSETS = (
    "gov_report",
    "summ_screen_fd",
    "qmsum",
    "squality",
    "qasper",
    "narrative_qa",
    "quality",
    "musique",
    "space_digest",
    "book_sum_sort",
)


def parse(record: dict[str, Any], place: Place) -> RawTask:
    """Parse the document and the pair of a record."""
    subset = subset_of(place, SUBSETS)
    prompt = text_of(record, "input")
    start, stop, query = (
        _index(record, f"{name}_index", prompt) for name in ("document_start", "document_end", "query_start")
    )
    if not start < stop <= query:
        raise BadRecord("wrong_index", f"document at {start} to {stop}, query from {query}: not in this order")
    document = RawDocument(text_key(prompt[start:stop]), prompt[start:stop])
    output = None if record.get("output") is None else text_of(record, "output")
    pair = RawPair(
        pair_id=text_of(record, "id"),
        documents=(document.key,),
        query="\n\n".join(part for part in (prompt[:start].strip(), prompt[query:].strip()) if part),
        targets=() if output is None else (output,),
        attributes={"subset": subset},
    )
    return RawTask([document], [pair])


def _index(record: dict[str, Any], name: str, text: str) -> int:
    """Return a position in the text."""
    value = record.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= len(text):
        raise BadRecord("wrong_index", f"{name!r} is {str(value)[:100]!r}, not a position in {len(text):,} characters")
    return value


READER = json_lines(parse)
