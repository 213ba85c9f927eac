"""SCROLLS: ``train.jsonl``, ``validation.jsonl`` and ``test.jsonl`` of each of seven data sets, in folders or zips.

A record is ``{id, pid, input, output}``; its input is the query, a blank line and the text. Records with equal ``id``
have the same input, and their outputs are references of one pair; ``output`` is null in ``test``. The text has no id,
so its hash is the document's key. Source: Shaham et al. 2022, "SCROLLS", section 3, and the files of ``tau/scrolls``.
"""

from __future__ import annotations

import re
from typing import Any

from corpora.errors import nearest
from corpora.readers.records import BadRecord
from corpora.readers.task_data.declaration import Place, RawDocument, RawPair, RawTask, text_key
from corpora.readers.task_data.files import json_lines, text_of

SUBSETS = ("qmsum", "qasper", "summ_screen_fd", "quality", "narrative_qa", "contract_nli", "gov_report")
"""The data sets, in the order of ``evaluator/prepare_submission.py`` of SCROLLS."""
WITHOUT_QUERY = ("gov_report", "summ_screen_fd")
_OPTION = re.compile(r"^\s*\(([A-D])\) ?", re.MULTILINE)


def subset_of(place: Place, known: tuple[str, ...]) -> str:
    """Return the data set that a file belongs to: ``--subset``, or the nearest folder or archive named like one."""
    name = place.options.subset or next((folder for folder in place.folders if folder in known), None)
    if name in known:
        return str(name)
    fault = (
        f"--subset {name}{nearest(name, known)}: unknown" if name else "no folder of the file is named after a subset"
    )
    raise BadRecord("unknown_subset", f"{fault}; name it with --subset, one of {', '.join(known)}")


def divide_input(text: str, subset: str) -> tuple[str, str, tuple[str, ...] | None]:
    """Split an input into query, document and options.

    The query of QuALITY ends after its option (D), other queries at the first blank line.
    """
    if subset in WITHOUT_QUERY:
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


def parse(record: dict[str, Any], place: Place) -> RawTask:
    """Parse the document and the pair of a record."""
    subset = subset_of(place, SUBSETS)
    query, text, options = divide_input(text_of(record, "input"), subset)
    document = RawDocument(text_key(text), text)
    output = None if record.get("output") is None else text_of(record, "output")
    pair = RawPair(
        pair_id=text_of(record, "id"),
        documents=(document.key,),
        query=query,
        targets=() if output is None else (output,),
        options=options,
        attributes={"subset": subset},
    )
    return RawTask([document], [pair])


READER = json_lines(parse)
