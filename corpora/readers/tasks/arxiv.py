"""arXiv and PubMed: ``train.txt``, ``val.txt`` and ``test.txt``, JSON lines of articles with their abstracts.

A record is ``{article_id, article_text: [sentence], abstract_text: ["<S> sentence </S>"], section_names, sections:
[[sentence]], labels}``, lowercased and tokenised; the two fields of text differ. Source: Cohan et al. 2018, "A
Discourse-Aware Attention Model", section 4, and its repository.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from corpora.errors import nearest
from corpora.readers.raw_fields import text_of
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask
from corpora.readers.records import BadRecord
from corpora.readers.task_files import json_lines

_MARKS = re.compile(r"</?S>")
_ARTICLE, _SECTIONS = "article_text", "sections"
_RECORDS = r"(?!.*vocab).*\.(txt|jsonl|json)(\.(gz|bz2|xz|zst))?|.*\.(zip|tar|tgz|tar\.(gz|bz2|xz|zst))"


def parse(record: dict[str, Any], place: Place) -> RawTask:
    """Parse an article, as one document or as one per section, and its abstract."""
    field, known = place.options.text_field, (_ARTICLE, _SECTIONS)
    if field not in known:
        raise BadRecord("missing_text", f"--text-field {field}{nearest(field, known)}: give one of {', '.join(known)}")
    key = text_of(record, "article_id")
    documents = list(_sections(record, key)) if field == _SECTIONS else [RawDocument(key, _lines(record, _ARTICLE))]
    abstract = [" ".join(_MARKS.sub(" ", sentence).split()) for sentence in _texts_of(record, "abstract_text")]
    summary = "\n".join(sentence for sentence in abstract if sentence)
    pair = RawPair(pair_id=key, documents=tuple(one.key for one in documents), targets=(summary,) if summary else ())
    return RawTask(documents, [pair])


def _texts_of(record: dict[str, Any], name: str) -> tuple[str, ...]:
    """Return a field that has to be a list of strings."""
    value = record.get(name)
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        shown = json.dumps(value, default=str)[:100]
        raise BadRecord("not_a_string", f"{name!r} is not a list of strings but {shown}")
    return tuple(value)


def _lines(record: dict[str, Any], name: str) -> str:
    return "\n".join(_texts_of(record, name))


def _sections(record: dict[str, Any], key: str) -> Iterator[RawDocument]:
    """Yield the sections of an article that have text."""
    names, sections = _texts_of(record, "section_names"), record.get("sections")
    if not isinstance(sections, list) or len(sections) != len(names):
        raise BadRecord("missing_text", f"'sections' is not a list of {len(names)} sections, one for each name")
    for number, name in enumerate(names):
        text = _lines({"sections": sections[number]}, "sections")
        if text.strip():
            yield RawDocument(f"{key}#{number}", f"{name}\n{text}")


READER = json_lines(parse, _RECORDS, text_field=_ARTICLE)
