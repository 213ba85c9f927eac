"""Suites of several data sets: SCROLLS, ZeroSCROLLS and LongBench."""

from __future__ import annotations

import re
from typing import Any

from corpora.errors import nearest
from corpora.readers.raw_tasks import Place, RawDocument, RawRecord, RawTask, text_key
from corpora.readers.records import BadRecord
from corpora.readers.task_files import json_lines

SUBSETS = ("qmsum", "qasper", "summ_screen_fd", "quality", "narrative_qa", "contract_nli", "gov_report")
"""The data sets, in the order of ``evaluator/prepare_submission.py`` of SCROLLS."""
_ZERO_SUBSETS = (
    *("gov_report", "summ_screen_fd", "qmsum", "squality", "qasper", "narrative_qa"),
    *("quality", "musique", "space_digest", "book_sum_sort"),
)
_WITHOUT_QUERY = ("gov_report", "summ_screen_fd")
_OPTION = re.compile(r"^\s*\(([A-D])\) ?", re.MULTILINE)


def parse_scrolls(record: RawRecord, place: Place) -> RawTask:
    """Parse a record ``{id, pid, input, output}``, whose input is the query, a blank line and the text.

    Records with equal ``id`` have the same input; ``output`` is null in ``test``. There are ``train.jsonl``,
    ``validation.jsonl`` and ``test.jsonl`` of each of seven data sets. Source: Shaham et al. 2022, "SCROLLS", section
    3, and the files of ``tau/scrolls``.
    """
    subset = _subset(place, SUBSETS)
    query, text, options = divide_input(record.text_of("input"), subset)
    return _task(record, text, query=query, options=options, attributes={"subset": subset})


def parse_zero_scrolls(record: RawRecord, place: Place) -> RawTask:
    """Parse a record that has the positions of document and query in its input, in characters.

    They are ``document_start_index``, ``document_end_index`` and ``query_start_index``. There are
    ``validation.jsonl`` and ``test.jsonl`` of each of ten data sets. Source: Shaham et al. 2023, "ZeroSCROLLS", section
    3; the names of the fields were not checked against the files of ``tau/zero_scrolls``.
    """
    subset = _subset(place, _ZERO_SUBSETS)
    prompt = record.text_of("input")
    start, stop, query = (
        _index(record, f"{name}_index", prompt) for name in ("document_start", "document_end", "query_start")
    )
    if not start < stop <= query:
        raise BadRecord("wrong_index", f"document at {start} to {stop}, query from {query}: not in this order")
    around = "\n\n".join(part for part in (prompt[:start].strip(), prompt[query:].strip()) if part)
    return _task(record, prompt[start:stop], query=around, attributes={"subset": subset})


def _subset(place: Place, known: tuple[str, ...]) -> str:
    """Return the data set that a file belongs to: ``--subset``, or the nearest folder or archive named like one."""
    name = place.options.subset or next((folder for folder in place.folders if folder in known), None)
    if name in known:
        return str(name)
    fault = (
        f"--subset {name}{nearest(name, known)}: unknown" if name else "no folder of the file is named after a subset"
    )
    raise BadRecord("unknown_subset", f"{fault}; name it with --subset, one of {', '.join(known)}")


def divide_input(text: str, subset: str) -> tuple[str, str, tuple[str, ...] | None]:
    """Split an input of SCROLLS into query, document and options.

    The query of QuALITY ends after its option (D), other queries at the first blank line.
    """
    if subset in _WITHOUT_QUERY:
        return "", text, None
    start = 0
    if subset == "quality":
        start = text.find("\n (D)")
        if start < 0:
            raise BadRecord("no_query", "no option (D) before the text")
    end = text.find("\n\n", start)
    if end < 0:
        raise BadRecord("no_query", "no blank line between query and text")
    query = text[:end]
    options = None
    if subset == "quality":
        options = tuple(part.strip() for part in _OPTION.split(query)[2::2])[-4:]  # the question may have an (A), too
    return query, text[end:].lstrip("\n"), options


def _task(record: RawRecord, text: str, **fields: Any) -> RawTask:
    targets = () if record.get("output") is None else (record.text_of("output"),)
    return RawTask.of([RawDocument(text_key(text), text)], pair_id=record.text_of("id"), targets=targets, **fields)


def _index(record: RawRecord, name: str, text: str) -> int:
    """Return a position in the text."""
    value = record.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= len(text):
        raise BadRecord("wrong_index", f"{name!r} is {str(value)[:100]!r}, not a position in {len(text):,} characters")
    return value


def parse_long_bench(record: RawRecord, place: Place) -> RawTask:
    """Parse the document and the pair of a record of one of 21 data sets; LongBench-E's files end in ``_e``.

    A data set is a file of JSON lines, in a folder or zip. Source: Bai et al. 2023, "LongBench", appendix; the names of
    the fields were not checked against the files::

        {"_id": "...", "dataset": "qasper", "language": "en", "length": 3417, "context": "...", "input": "...",
         "answers": ["..."], "all_classes": null}
    """
    text = record.require_text("context")
    classes = record.list_of("all_classes", str) if record.get("all_classes") is not None else []
    return RawTask.of(
        [RawDocument(text_key(text), text)],
        pair_id=record.id_of("_id"),
        query=record.optional_text("input"),
        targets=tuple(record.require_texts("answers")),
        options=tuple(classes) or None,
        split="test",
        attributes={
            "subset": record.require_text("dataset"),
            **{name: record[name] for name in ("language", "length") if record.get(name) is not None},
        },
    )


READERS = {
    "long-bench": json_lines(parse_long_bench),
    "scrolls": json_lines(parse_scrolls),
    "zero-scrolls": json_lines(parse_zero_scrolls),
}
