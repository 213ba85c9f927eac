"""GovReport: reports of two agencies of the US Congress, GAO and CRS, and the summaries that experts wrote for them.

Source: Huang et al. 2021, "Efficient Attentions for Long Document Summarization", section 4; layout as read by
tensorflow_datasets: summarization/gov_report::

    gov-report/split_ids/{gao,crs}_{train,valid,test}.ids
    gov-report/gao/ID.json   {"id", "title", "report": [SECTION], "highlight": [SECTION]}
    gov-report/crs/ID.json   {"id", "title", "reports": SECTION, "summary": ["paragraph"]}
    SECTION = {"section_title": "...", "paragraphs": ["..."], "subsections": [SECTION]}

JSON lines with ``report`` (or ``document``) and ``summary``, as on the hub, are read too.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Any

from corpora.readers.raw_fields import list_of, object_of, optional_text, require_text, require_texts, text_beside
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask, text_key
from corpora.readers.records import BadRecord
from corpora.readers.task_files import by_name, index_files, json_lines, json_object

_IDS = re.compile(r"(gao|crs)_(train|valid|test)\.ids")
_RECOMMENDATIONS = re.compile(r"\s*what gao recommends\s*", re.IGNORECASE)


def ids(data: bytes, place: Place) -> list[tuple[str, str]]:
    """List the ids in a file, each as ``agency/id``."""
    if not (name := _IDS.fullmatch(place.name)):
        raise BadRecord("unsafe_name", f"{place.name} is not called gao_train.ids, crs_valid.ids or similar")
    keys = [f"{name[1]}/{line.strip()}" for line in data.decode(errors="replace").splitlines() if line.strip()]
    return [(key, key) for key in keys]


def parse_id(key: str, place: Place) -> RawTask:
    """Parse the report of an entry."""
    if not re.fullmatch(r"(gao|crs)/[^/\\]+", key) or key.endswith(("/..", "/.")):
        raise BadRecord("unsafe_name", f"{key[:100]!r} is not the id of a report")
    report = json_object(text_beside(place, f"../{key}.json").encode())
    agency = posixpath.dirname(key)
    if agency == "gao":
        text = "\n".join(line for section in list_of(report, "report", dict) for line in lines_of(section))
        highlights = [part for part in list_of(report, "highlight", dict) if not _recommends(part)]
        summary = "\n".join(line for part in highlights for line in lines_of({**part, "section_title": ""}))
    else:
        text = "\n".join(lines_of(object_of(report, "reports")))
        summary = "\n".join(require_texts(report, "summary"))
    return _task(key, key, text, summary, agency)


def parse_line(record: dict[str, Any], place: Place) -> RawTask:
    """Parse a line with ``report`` or ``document``, and ``summary``."""
    text = require_text(record, "report" if "report" in record else "document")
    key = text_key(text)
    name = record.get("id")
    return _task(key, name if isinstance(name, str) and name else key, text, require_text(record, "summary"), "")


def lines_of(section: dict[str, Any]) -> Iterator[str]:
    """Yield title, paragraphs and subsections of a section, in order."""
    try:
        yield from _lines(section)
    except RecursionError:
        raise BadRecord("too_deep", "sections are nested too deeply") from None


def _lines(section: dict[str, Any]) -> Iterator[str]:
    lines = [optional_text(section, "section_title"), *list_of(section, "paragraphs", str)]
    yield from (line for line in lines if line.strip())
    for inner in list_of(section, "subsections", dict) if "subsections" in section else ():
        yield from _lines(inner)


def _recommends(section: dict[str, Any]) -> bool:
    return _RECOMMENDATIONS.fullmatch(optional_text(section, "section_title")) is not None


def _task(key: str, pair_id: str, text: str, summary: str, agency: str) -> RawTask:
    for name, value in (("report", text), ("summary", summary)):
        if not value.strip():
            raise BadRecord("empty_text", f"the {name} is empty")
    attributes = {"agency": agency} if agency else {}
    pair = RawPair(pair_id=pair_id, documents=(key,), targets=(summary,), attributes=attributes)
    return RawTask([RawDocument(key, text)], [pair])


READER = by_name({r".*\.ids": index_files(ids, parse_id, ""), r".*\.(jsonl|zip)": json_lines(parse_line)})
