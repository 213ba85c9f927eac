"""Qasper: questions about NLP papers, answered from the whole paper by one or several annotators.

Source: Dasigi et al. 2021, "A Dataset of Information-Seeking Questions and Answers Anchored in Research Papers"; fields
as read by allenai/qasper-led-baseline: qasper_baselines/dataset_reader.py, scripts/evaluator.py. Files
``qasper-train-v0.3.json``, ``qasper-dev-v0.3.json``, ``qasper-test-v0.3.json``, each one object, paper id -> paper::

    {"1909.00694": {"title": "...", "abstract": "...", "full_text": [{"section_name": "...", "paragraphs": ["..."]}],
     "qas": [{"question": "...", "question_id": "...", "answers": [{"answer": {"unanswerable": false,
         "extractive_spans": [], "yes_no": null, "free_form_answer": "..."}}]}]}}
"""

from __future__ import annotations

from typing import Any

from corpora.readers.raw_fields import list_of, object_of, optional_text, require_text, task_of_questions
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask
from corpora.readers.records import BadRecord
from corpora.readers.task_files import json_document


def parse(paper: dict[str, Any], place: Place) -> RawTask:
    """Parse the paper ``place.key`` and its questions."""

    def pair(question: dict[str, Any]) -> RawPair:
        answers = [answer_of(object_of(item, "answer")) for item in list_of(question, "answers", dict)]
        return RawPair(
            pair_id=require_text(question, "question_id"),
            documents=(place.key,),
            query=require_text(question, "question"),
            targets=tuple(text for text, _ in answers),
            attributes={"kinds": [kind for _, kind in answers]},
        )

    return task_of_questions([RawDocument(place.key, full_text(paper))], list_of(paper, "qas", dict), pair)


def full_text(paper: dict[str, Any]) -> str:
    """Join section names and paragraphs, one per line."""
    lines: list[str] = []
    for section in list_of(paper, "full_text", dict):
        lines += [optional_text(section, "section_name"), *list_of(section, "paragraphs", str)]
    kept = [" ".join(line.split()) for line in lines if line.strip()]
    if not kept:
        raise BadRecord("empty_text", "'full_text' has no paragraph")
    return "\n".join(kept)


def answer_of(fields: dict[str, Any]) -> tuple[str, str]:
    """Return the answer as a string, and its kind: none, extractive, abstractive or boolean.

    If an answer has several kinds, which the authors do not intend, the first in their evaluator's order is used.
    """
    if fields.get("unanswerable"):
        return "Unanswerable", "none"
    if fields.get("extractive_spans"):
        return ", ".join(list_of(fields, "extractive_spans", str)), "extractive"
    if fields.get("free_form_answer"):
        return require_text(fields, "free_form_answer"), "abstractive"
    if fields.get("yes_no") is not None:
        return ("Yes" if fields["yes_no"] else "No"), "boolean"
    raise BadRecord("no_answer", "an answer is neither unanswerable nor extractive, free-form, yes or no")


READER = json_document(parse, r".*\.json")
