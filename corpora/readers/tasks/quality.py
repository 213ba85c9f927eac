"""QuALITY: questions with four options about stories and articles of about 5,000 words.

Source: Pang et al. 2022, "QuALITY"; fields as in nyu-mll/quality: README.md. JSON lines named
``QuALITY.v1.0.1.htmlstripped.train``, ``.dev``, ``.test``, one line for each article and question writer::

    {"article_id": "...", "set_unique_id": "...", "article": "...", "questions": [{"question": "...",
     "question_unique_id": "...", "options": ["...", "...", "...", "..."], "gold_label": 2, "difficult": 1}]}

``gold_label`` counts from 1. Attribute ``hard`` is true for questions that people under time pressure get wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from corpora.readers.raw_fields import id_of, list_of, optional_text, require_text, require_texts, task_of_questions
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask
from corpora.readers.records import BadRecord
from corpora.readers.task_files import json_lines

_PAGES = re.compile(r"QuALITY\.v[\d.]+\.(train|dev|test)")
_LETTERS = "ABCDEFGH"


def parse(record: dict[str, Any], place: Place) -> RawTask:
    """Parse an article and the questions of one writer."""
    if _PAGES.fullmatch(place.name):
        stripped = re.sub(r"\.(\w+)$", r".htmlstripped.\1", place.name)
        raise BadRecord("html_text", f"the articles of {place.name} are web pages; give {stripped}")
    key, group = id_of(record, "article_id"), id_of(record, "set_unique_id")

    def pair(numbered: tuple[int, dict[str, Any]]) -> RawPair:
        number, question = numbered
        options = require_texts(question, "options")
        gold = question.get("gold_label")
        if gold is not None and (type(gold) is not int or not 1 <= gold <= len(options)):
            raise BadRecord("unknown_label", f"'gold_label' is {gold!r}, where 1 to {len(options)} are options")
        attributes: dict[str, Any] = {"gold_label": gold} if gold is not None else {}
        if "difficult" in question:
            attributes["hard"] = bool(question["difficult"])
        return RawPair(
            pair_id=optional_text(question, "question_unique_id") or f"{group}_{number}",
            documents=(key,),
            query=query_of(require_text(question, "question"), options),
            targets=() if gold is None else (options[gold - 1],),
            options=tuple(options),
            attributes=attributes,
        )

    questions = enumerate(list_of(record, "questions", dict), 1)
    return task_of_questions([RawDocument(key, require_text(record, "article"))], questions, pair)


def query_of(question: str, options: Sequence[str]) -> str:
    """Format question and options in the layout of SCROLLS."""
    if len(options) > len(_LETTERS):
        raise BadRecord("too_many_options", f"{len(options)} options, more than {len(_LETTERS)}")
    return "\n".join([question, "", *(f" ({letter}) {text}" for letter, text in zip(_LETTERS, options, strict=False))])


READER = json_lines(parse, r"QuALITY.*htmlstripped\.(train|dev|test)|.*\.(jsonl|json|zip)")
