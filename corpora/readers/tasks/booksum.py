"""BookSum: chapters and whole books of Project Gutenberg, and summaries of them from study guides.

Source: Kryscinski et al. 2021, "BookSum"; layout of salesforce/booksum: alignments/::

    alignments/chapter-level-summary-alignments/chapter_summary_aligned_{train,val,test}_split.jsonl
    alignments/book-level-summary-alignments/book_summaries_aligned_{train,val,test}.jsonl
    all_chapterized_books/1023-chapters/19.txt
    finished_summaries/gradesaver/Bleak House/section_5_part_1.txt  (in the same folder, or in scripts/)

    {"bid": "1023", "is_aggregate": false, "source": "gradesaver", "chapter_path": "all_chapterized_books/...",
     "summary_path": "finished_summaries/...", "book_id": "Bleak House.chapter 18", "summary_id": "chapter 18"}

A summary file is a JSON object with ``summary``, whatever its suffix. Rows whose summary is missing or empty are
rejected, as the authors skip them.
"""

from __future__ import annotations

import json
from typing import Any

from corpora.readers.raw_fields import require_text, require_texts, text_beside
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask
from corpora.readers.records import BadRecord
from corpora.readers.streams import Line
from corpora.readers.task_files import index_files

_KEPT = ("bid", "book_id", "title", "is_aggregate")
Row = dict[str, Any] | BadRecord
_ROOTS = ("../../", "../../scripts/", "../", "../scripts/", "", "scripts/")  # of paths, from the alignments' folder


def chapters(data: bytes, place: Place) -> list[tuple[str, list[Row]]]:
    """Group rows by chapter or book, named by its path without folder and suffix; a bad row is an entry by itself."""
    groups: dict[str, list[Row]] = {}
    offset = 0
    for line in data.splitlines(keepends=True):
        if line.strip():
            try:
                row = Line(offset, line, len(line)).record()
                path = require_text(row, "chapter_path" if "chapter_path" in row else "book_path")
                key = path.removeprefix("all_chapterized_books/").removesuffix(".txt")
                groups.setdefault(key, []).append({**row, "path": path})
            except BadRecord as bad:
                groups[str(offset)] = [bad]
        offset += len(line)
    return list(groups.items())


def parse(rows: list[Row], place: Place) -> RawTask:
    """Parse a chapter or book and its summaries."""
    good: list[tuple[str, str]] = []
    bad: list[BadRecord] = []
    for row in rows:
        try:
            if isinstance(row, BadRecord):
                raise row
            good.append((require_text(row, "source"), summary_of(row, place)))
        except BadRecord as error:
            bad.append(error)
    if not good or isinstance(rows[0], BadRecord):
        raise bad[0]
    first = rows[0]
    text = text_beside(place, *(root + _safe(first["path"]) for root in _ROOTS))
    attributes: dict[str, Any] = {name: first[name] for name in _KEPT if name in first}
    pair = RawPair(
        pair_id=place.key,
        documents=(place.key,),
        targets=tuple(summary for _, summary in good),
        attributes={**attributes, "sources": [source for source, _ in good]},
    )
    return RawTask([RawDocument(place.key, text)], [pair], bad)


def summary_of(row: dict[str, Any], place: Place) -> str:
    """Read the summary that a row names."""
    name = _safe(require_text(row, "summary_path"))
    text = text_beside(place, *(root + name for root in _ROOTS))
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRecord("broken_json", f"{name}: {error}") from error
    if not isinstance(fields, dict):
        raise BadRecord("not_an_object", f"{name}: a JSON value of type {type(fields).__name__}")
    if isinstance(fields.get("summary"), list):
        return "\n".join(require_texts(fields, "summary"))
    return require_text(fields, "summary")


def _safe(name: str) -> str:
    if ".." in name.split("/") or name.startswith("/") or "://" in name:
        raise BadRecord("unsafe_name", f"{name[:100]!r} leads out of the folder of the data set")
    return name


READER = index_files(chapters, parse, r".*_aligned_(train|val|test).*\.jsonl")
