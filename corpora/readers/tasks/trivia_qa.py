"""TriviaQA: trivia questions with the Wikipedia pages that a linker found for them.

Source: Joshi et al. 2017, "TriviaQA", section 3; fields as in mandarjoshi90/triviaqa: samples/triviaqa_sample.json, and
utils/dataset_utils.py. Questions and pages are side by side::

    qa/wikipedia-train.json, qa/wikipedia-dev.json, qa/wikipedia-test-without-answers.json, qa/web-*.json
    evidence/wikipedia/FILENAME

    {"Data": [{"Question": "...", "QuestionId": "tc_33", "Answer": {"Value": "...", "Aliases": ["..."]},
               "EntityPages": [{"Title": "...", "Filename": "Some_Page.txt"}], "SearchResults": [...]}]}

Search results are ignored, so a question of the web files that has only these is rejected.
"""

from __future__ import annotations

from typing import Any

from corpora.readers.raw_fields import (
    id_of,
    list_of,
    object_of,
    optional_text,
    require_text,
    require_texts,
    text_beside,
)
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask
from corpora.readers.records import BadRecord
from corpora.readers.task_files import json_field

EVIDENCE = "../evidence/wikipedia/"


def parse(record: dict[str, Any], place: Place) -> RawTask:
    """Parse a question and its pages."""
    verified = place.name.startswith("verified-")
    if verified and not record.get("QuestionPartOfVerifiedEval", True):
        return RawTask([], [])
    pages: list[RawDocument] = []
    missing: list[BadRecord] = []
    for page in list_of(record, "EntityPages", dict):
        if verified and not page.get("DocPartOfVerifiedEval", True):
            continue
        try:
            pages.append(page_of(page, place))
        except BadRecord as bad:
            missing.append(bad)
    if not pages:
        raise missing[0] if missing else BadRecord("empty_text", "'EntityPages' names no page")
    value, references = answers_of(record)
    pair = RawPair(
        pair_id=id_of(record, "QuestionId"),
        documents=tuple(page.key for page in pages),
        query=require_text(record, "Question"),
        targets=value,
        references=references,
    )
    return RawTask(pages, [pair], missing)


def page_of(page: dict[str, Any], place: Place) -> RawDocument:
    """Read a page and put its title before it."""
    name = require_text(page, "Filename")
    if ".." in name.split("/") or name.startswith("/"):
        raise BadRecord("unsafe_name", f"'Filename' {name[:100]!r} leads out of the folder of pages")
    text = text_beside(place, EVIDENCE + name)
    return RawDocument(name.removesuffix(".txt"), f"{optional_text(page, 'Title')}\n{text}".strip())


def answers_of(record: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the target, and the references: value and aliases, each once. Both are empty if answers are withheld."""
    if record.get("Answer") is None:
        return (), ()
    answer = object_of(record, "Answer")
    value = require_text(answer, "Value")
    aliases = require_texts(answer, "Aliases") if answer.get("Aliases") else []
    return (value,), tuple(dict.fromkeys([value, *aliases]))


READER = json_field(parse, "Data", r"wikipedia-.*\.json")
