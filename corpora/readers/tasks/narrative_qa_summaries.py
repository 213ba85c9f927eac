"""NarrativeQA with Wikipedia's summaries, from which the questions were written, in place of the stories.

Source as in ``narrative_qa``::

    third_party/wikipedia/summaries.csv    document_id,set,summary,summary_tokenized
    qaps.csv                               two folders above it, or beside it

Documents have the keys of the stories, and pairs the ids of the questions about them.
"""

from __future__ import annotations

from corpora.readers.task_data.declaration import Place, RawDocument, RawTask
from corpora.readers.task_data.fields import filled_text, text_beside
from corpora.readers.task_data.files import index_files
from corpora.readers.tasks.narrative_qa import Story, questions_about, table_of, with_questions


def summaries(data: bytes, place: Place) -> list[tuple[str, Story]]:
    """List the summaries of the table, each with its questions."""
    rows = table_of(data, place.name, ("document_id", "set", "summary"))
    return with_questions(rows, text_beside(place, "../../qaps.csv", "qaps.csv").encode())


def parse(story: Story, place: Place) -> RawTask:
    """Parse a summary and its questions."""
    row, questions = story
    return questions_about(RawDocument(place.key, filled_text(row, "summary").strip()), questions, row["set"], {})


READER = index_files(summaries, parse, r"summaries\.csv")
