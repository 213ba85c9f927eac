"""Books and film scripts, with summaries of them (BookSum) or questions about them (NarrativeQA)."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawRecord, RawTask, text_beside
from corpora.readers.records import BadRecord
from corpora.readers.streams import Line
from corpora.readers.task_files import index_files
from corpora.text.preprocessing import html_text, looks_like_html, strip_gutenberg

_KEPT = ("bid", "book_id", "title", "is_aggregate")
_ROOTS = ("../../", "../../scripts/", "../", "../scripts/", "", "scripts/")  # of paths, from the alignments' folder
_ENCODINGS = ("utf-8-sig", "cp1252", "latin-1")  # the last decodes anything
_COMPRESSED = (b"\x1f\x8b", b"PK\x03\x04")
Row = RawRecord | BadRecord
Story = tuple[RawRecord, list[RawRecord]]  # a row about a story, and its rows of qaps.csv


def chapters(data: bytes, place: Place) -> list[tuple[str, list[Row]]]:
    """Group rows by chapter or book, named by its path without folder and suffix; a bad row is an entry by itself."""
    groups: dict[str, list[Row]] = {}
    offset = 0
    for line in data.splitlines(keepends=True):
        if line.strip():
            try:
                row = RawRecord(Line(offset, line, len(line)).record())
                path = row.require_text("chapter_path" if "chapter_path" in row else "book_path")
                key = path.removeprefix("all_chapterized_books/").removesuffix(".txt")
                groups.setdefault(key, []).append(RawRecord(row, path=path))
            except BadRecord as bad:
                groups[str(offset)] = [bad]
        offset += len(line)
    return list(groups.items())


def parse_chapter(rows: list[Row], place: Place) -> RawTask:
    """Parse a chapter or whole book of Project Gutenberg, and the summaries of it from study guides.

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
    good: list[tuple[str, str]] = []
    bad: list[BadRecord] = []
    for row in rows:
        try:
            if isinstance(row, BadRecord):
                raise row
            good.append((row.require_text("source"), _summary(row, place)))
        except BadRecord as error:
            bad.append(error)
    if not good or isinstance(rows[0], BadRecord):
        raise bad[0]
    first = rows[0]
    text = text_beside(place, *(root + _safe(first["path"]) for root in _ROOTS))
    attributes: dict[str, Any] = {name: first[name] for name in _KEPT if name in first}
    return RawTask.of(
        [RawDocument(place.key, text)],
        bad=bad,
        pair_id=place.key,
        targets=tuple(summary for _, summary in good),
        attributes={**attributes, "sources": [source for source, _ in good]},
    )


def _summary(row: RawRecord, place: Place) -> str:
    """Read the summary that a row names."""
    name = _safe(row.require_text("summary_path"))
    text = text_beside(place, *(root + name for root in _ROOTS))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRecord("broken_json", f"{name}: {error}") from error
    if not isinstance(value, dict):
        raise BadRecord("not_an_object", f"{name}: a JSON value of type {type(value).__name__}")
    fields = RawRecord(value)
    if isinstance(fields.get("summary"), list):
        return "\n".join(fields.require_texts("summary"))
    return fields.require_text("summary")


def _safe(name: str) -> str:
    if ".." in name.split("/") or name.startswith("/") or "://" in name:
        raise BadRecord("unsafe_name", f"{name[:100]!r} leads out of the folder of the data set")
    return name


def stories(data: bytes, place: Place) -> list[tuple[str, Story]]:
    """List the stories of ``documents.csv`` of NarrativeQA, each with its questions."""
    return _with_questions(_table(data, place.name, ("document_id", "set", "kind")), place.read_beside("qaps.csv"))


def story_summaries(data: bytes, place: Place) -> list[tuple[str, Story]]:
    """List the summaries of the table of NarrativeQA, each with its questions."""
    rows = _table(data, place.name, ("document_id", "set", "summary"))
    return _with_questions(rows, text_beside(place, "../../qaps.csv", "qaps.csv").encode())


def _with_questions(rows: list[RawRecord], data: bytes) -> list[tuple[str, Story]]:
    """Join rows about stories with the rows of ``qaps.csv`` by id."""
    questions: dict[str, list[RawRecord]] = {}
    for row in _table(data, "qaps.csv", ("document_id", "question", "answer1")):
        questions.setdefault(row["document_id"], []).append(row)
    return [(row["document_id"], (row, questions.get(row["document_id"], []))) for row in rows]


def _table(data: bytes, name: str, columns: tuple[str, ...]) -> list[RawRecord]:
    """Parse a table that has at least the given columns."""
    try:
        table = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), restval="")
        if lacking := [column for column in columns if column not in (table.fieldnames or ())]:
            raise BadRecord("missing_text", f"{name} has no column {lacking[0]!r}")
        return list(map(RawRecord, table))
    except UnicodeDecodeError as error:
        raise BadRecord("invalid_utf8", f"{name}: byte {error.start}: {error.reason}") from error
    except csv.Error as error:
        raise BadRecord("broken_table", f"{name}: {error}") from error


def parse_story(story: Story, place: Place) -> RawTask:
    """Parse a whole book or film script, and questions that were written from Wikipedia's summary of it.

    Source: Kocisky et al. 2018, "The NarrativeQA Reading Comprehension Challenge"; layout of
    google-deepmind/narrativeqa: README.md, documents.csv, download_stories.sh::

        documents.csv    document_id,set,kind,story_url,story_file_size,wiki_url,wiki_title,story_word_count,...
        qaps.csv         document_id,set,question,answer1,answer2,question_tokenized,answer1_tokenized,...
        tmp/ID.content   the story, as download_stories.sh stores it: UTF-8, windows-1252 or latin-1, text or a web page
        third_party/wikipedia/summaries.csv    document_id,set,summary,summary_tokenized

    ``story_start`` and ``story_end`` cannot find Project Gutenberg's header and licence, because in the published table
    they are often the first and last words of these.
    """
    row, questions = story
    if not re.fullmatch(r"[\w-]+", place.key):
        raise BadRecord("unsafe_name", f"{place.key[:100]!r} is not the id of a story")
    document = RawDocument(place.key, story_text(place.read_beside(f"tmp/{place.key}.content")))
    return _questions(document, questions, row["set"], {"kind": row["kind"], "title": row.get("wiki_title", "")})


def parse_story_summary(story: Story, place: Place) -> RawTask:
    """Parse a summary, and the questions in place of the story's: keys and ids of pairs are those of the story."""
    row, questions = story
    return _questions(RawDocument(place.key, row.require_text("summary").strip()), questions, row["set"], {})


def _questions(document: RawDocument, questions: list[RawRecord], split: str, attributes: dict[str, Any]) -> RawTask:
    """Make the contents of a document and all questions about it, each with one or two answers."""

    def pair(numbered: tuple[int, RawRecord]) -> RawPair:
        number, row = numbered
        question = row.require_text("question")
        answers = [text.strip() for name in ("answer1", "answer2") if (text := row.get(name) or "").strip()]
        if not answers:
            raise BadRecord("no_answer", f"the question {question[:100]!r} has no answer")
        return RawPair(
            pair_id=f"{document.key}_{number}",
            documents=(document.key,),
            query=question,
            targets=tuple(answers),
            split=split,
            attributes=attributes,
        )

    return RawTask.of_questions([document], enumerate(questions), pair)


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
    for encoding in _ENCODINGS[:-1]:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            pass
    return data.decode(_ENCODINGS[-1])


READERS = {
    "booksum": index_files(chapters, parse_chapter, r".*_aligned_(train|val|test).*\.jsonl"),
    "narrative-qa": index_files(stories, parse_story, r"documents\.csv"),
    "narrative-qa-summaries": index_files(story_summaries, parse_story_summary, r"summaries\.csv"),
}
