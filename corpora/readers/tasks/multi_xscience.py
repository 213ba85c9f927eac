"""Multi-XScience: the related work of a paper, from its abstract and those of the papers that it cites.

Source: Lu et al. 2020, "Multi-XScience"; layout of the hub and of PRIMERA's script. Not checked against the original
files. JSON arrays or lines ``{train,val,test}.json``::

    {"aid": "1", "mid": "2", "abstract": "...", "related_work": "... @cite_1 ...",
     "ref_abstract": {"@cite_1": {"mid": "3", "abstract": "..."}}}

On the hub, ``ref_abstract`` has lists: ``{"cite_N": ["@cite_1"], "mid": ["3"], "abstract": ["..."]}``. The documents
are the abstract, then those of the cited papers that have one. In the target, ``@cite_1`` becomes ``cite``, as in
PRIMERA.
"""

from __future__ import annotations

import re
from typing import Any

from corpora.readers.raw_fields import id_of, list_of, object_of, optional_text, require_text
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask
from corpora.readers.task_files import as_object, json_records

_MARK = re.compile(r"@cite_\d+")


def parse(record: dict[str, Any], place: Place) -> RawTask:
    """Parse a paper: its abstract and the cited ones, and its related work."""
    key, cited = id_of(record, "aid"), object_of(record, "ref_abstract")
    if isinstance(cited.get("cite_N"), list):
        abstracts = dict(zip(list_of(cited, "cite_N", str), list_of(cited, "abstract", str), strict=False))
    else:
        abstracts = {name: optional_text(as_object(paper), "abstract") for name, paper in cited.items()}
    documents = [RawDocument(key, require_text(record, "abstract"))]
    documents += [RawDocument(f"{key}#{name.lstrip('@')}", text) for name, text in abstracts.items() if text.strip()]
    target = " ".join(_MARK.sub("cite", require_text(record, "related_work")).split())
    return RawTask(documents, [RawPair(pair_id=key, documents=tuple(one.key for one in documents), targets=(target,))])


READER = json_records(parse, r".*\.(json|jsonl)(\.(gz|bz2|xz|zst))?")
