"""arXiv and PubMed: ``train.txt``, ``val.txt`` and ``test.txt``, JSON lines of articles with their abstracts.

A record is ``{article_id, article_text: [sentence], abstract_text: ["<S> sentence </S>"], section_names, sections:
[[sentence]], labels}``, lowercased and split into tokens. Sentences become lines. ``article_text`` is the document, as
most systems have it; with ``--text-field sections`` each section is one, with its name before it, as PRIMERA has it
(the two are not the same text). Source: Cohan et al. 2018, "A Discourse-Aware Attention Model", section 4, and its
repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from corpora.errors import nearest
from corpora.readers.records import BadRecord
from corpora.readers.task_data.declaration import Place, RawDocument, RawPair, RawTask
from corpora.readers.task_data.files import json_lines, text_of, texts_of

_MARKS = re.compile(r"</?S>")
_ARTICLE, _SECTIONS = "article_text", "sections"
_RECORDS = r"(?!.*vocab).*\.(txt|jsonl|json)(\.(gz|bz2|xz|zst))?|.*\.(zip|tar|tgz|tar\.(gz|bz2|xz|zst))"


def parse(record: dict[str, Any], place: Place) -> RawTask:
    """An article, as one document or as several, and its abstract."""
    field, known = place.options.text_field, (_ARTICLE, _SECTIONS)
    if field not in known:
        raise BadRecord("missing_text", f"--text-field {field}{nearest(field, known)}: give one of {', '.join(known)}")
    key = text_of(record, "article_id")
    documents = list(_sections(record, key)) if field == _SECTIONS else [RawDocument(key, _lines(record, _ARTICLE))]
    abstract = [" ".join(_MARKS.sub(" ", sentence).split()) for sentence in texts_of(record, "abstract_text")]
    summary = "\n".join(sentence for sentence in abstract if sentence)
    pair = RawPair(pair_id=key, documents=tuple(one.key for one in documents), targets=(summary,) if summary else ())
    return RawTask(documents, [pair])


def _lines(record: dict[str, Any], name: str) -> str:
    return "\n".join(texts_of(record, name))


def _sections(record: dict[str, Any], key: str) -> Iterator[RawDocument]:
    """The sections of an article that have text."""
    names, sections = texts_of(record, "section_names"), record.get("sections")
    if not isinstance(sections, list) or len(sections) != len(names):
        raise BadRecord("missing_text", f"'sections' is no list of {len(names)} sections, one for each of their names")
    for number, name in enumerate(names):
        text = _lines({"sections": sections[number]}, "sections")
        if text.strip():
            yield RawDocument(f"{key}#{number}", f"{name}\n{text}")


DATA = json_lines(parse, _RECORDS, text_field=_ARTICLE)
