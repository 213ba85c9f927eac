"""NarrativeQA: questions about whole books and film scripts, written from Wikipedia's summaries of them.

Source: Kocisky et al. 2018, "The NarrativeQA Reading Comprehension Challenge"; layout of google-deepmind/narrativeqa:
README.md, documents.csv, download_stories.sh::

    documents.csv    document_id,set,kind,story_url,story_file_size,wiki_url,wiki_title,story_word_count,...
    qaps.csv         document_id,set,question,answer1,answer2,question_tokenized,answer1_tokenized,answer2_tokenized
    tmp/ID.content   the story, as download_stories.sh stores it: UTF-8, windows-1252 or latin-1, text or a web page
    third_party/wikipedia/summaries.csv    document_id,set,summary,summary_tokenized

``story_start`` and ``story_end`` cannot find Project Gutenberg's header and licence, because in the published table
they are often the first and last words of these. ``--format narrative-qa-summaries`` reads the summaries in place of
the stories; documents have the keys of the stories, and pairs the ids of the questions about them.
"""

from __future__ import annotations

import csv
import io
import re
from typing import Any

from corpora.readers.raw_fields import require_text, task_of_questions, text_beside
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask
from corpora.readers.records import BadRecord
from corpora.readers.task_files import index_files
from corpora.text.preprocessing import html_text, looks_like_html, strip_gutenberg

ENCODINGS = ("utf-8-sig", "cp1252", "latin-1")  # the last decodes anything
_COMPRESSED = (b"\x1f\x8b", b"PK\x03\x04")
Story = tuple[dict[str, str], list[dict[str, str]]]  # a row about a story, and its rows of qaps.csv


def stories(data: bytes, place: Place) -> list[tuple[str, Story]]:
    """List the stories of ``documents.csv``, each with its questions."""
    return with_questions(table_of(data, place.name, ("document_id", "set", "kind")), place.read_beside("qaps.csv"))


def with_questions(rows: list[dict[str, str]], data: bytes) -> list[tuple[str, Story]]:
    """Join rows about stories with the rows of ``qaps.csv`` by id."""
    questions: dict[str, list[dict[str, str]]] = {}
    for row in table_of(data, "qaps.csv", ("document_id", "question", "answer1")):
        questions.setdefault(row["document_id"], []).append(row)
    return [(row["document_id"], (row, questions.get(row["document_id"], []))) for row in rows]


def table_of(data: bytes, name: str, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Parse a table that has at least the given columns."""
    try:
        table = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), restval="")
        if lacking := [column for column in columns if column not in (table.fieldnames or ())]:
            raise BadRecord("missing_text", f"{name} has no column {lacking[0]!r}")
        return list(table)
    except UnicodeDecodeError as error:
        raise BadRecord("invalid_utf8", f"{name}: byte {error.start}: {error.reason}") from error
    except csv.Error as error:
        raise BadRecord("broken_table", f"{name}: {error}") from error


def parse(story: Story, place: Place) -> RawTask:
    """Parse a story and its questions."""
    row, questions = story
    if not re.fullmatch(r"[\w-]+", place.key):
        raise BadRecord("unsafe_name", f"{place.key[:100]!r} is not the id of a story")
    document = RawDocument(place.key, story_text(place.read_beside(f"tmp/{place.key}.content")))
    return questions_about(document, questions, row["set"], {"kind": row["kind"], "title": row.get("wiki_title", "")})


def questions_about(
    document: RawDocument, questions: list[dict[str, str]], split: str, attributes: dict[str, Any]
) -> RawTask:
    """Make the contents of a document and all questions about it."""

    def pair(numbered: tuple[int, dict[str, str]]) -> RawPair:
        number, question = numbered
        return RawPair(
            pair_id=f"{document.key}_{number}",
            documents=(document.key,),
            query=require_text(question, "question"),
            targets=tuple(answers_of(question)),
            split=split,
            attributes=attributes,
        )

    return task_of_questions([document], enumerate(questions), pair)


def answers_of(question: dict[str, Any]) -> list[str]:
    """Return the one or two answers, stripped."""
    answers = [text.strip() for name in ("answer1", "answer2") if (text := question.get(name) or "").strip()]
    if not answers:
        raise BadRecord("no_answer", f"the question {question['question'][:100]!r} has no answer")
    return answers


def story_text(data: bytes) -> str:
    """Return the story in a downloaded file: decoded, without markup and Project Gutenberg's header and licence."""
    if data.startswith(_COMPRESSED):
        raise BadRecord("compressed_file", "the story is compressed; unpack it, as download_stories.sh does")
    text = _decode(data)
    text = strip_gutenberg(html_text(text) if looks_like_html(text) else text)
    if not text.strip():
        raise BadRecord("empty_text", "the story has no text")
    return text


def _decode(data: bytes) -> str:
    for encoding in ENCODINGS[:-1]:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            pass
    return data.decode(ENCODINGS[-1])


def summaries(data: bytes, place: Place) -> list[tuple[str, Story]]:
    """List the summaries of the table, each with its questions."""
    rows = table_of(data, place.name, ("document_id", "set", "summary"))
    return with_questions(rows, text_beside(place, "../../qaps.csv", "qaps.csv").encode())


def parse_summary(story: Story, place: Place) -> RawTask:
    """Parse a summary and its questions."""
    row, questions = story
    return questions_about(RawDocument(place.key, require_text(row, "summary").strip()), questions, row["set"], {})


READER = index_files(stories, parse, r"documents\.csv")
SUMMARIES_READER = index_files(summaries, parse_summary, r"summaries\.csv")
