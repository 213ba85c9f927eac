"""Titles of the documents of a corpus, which has only their ids: looked up in the documents that it was made from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from corpora.errors import FarspanError
from corpora.printing import format_count, printable
from corpora.schemas.corpus import Corpus
from corpora.schemas.documents import DocumentSet, has_titles
from corpora.storage import files
from corpora.storage.manifest_file import NAME, manifest_sha256
from corpora.storage.origins import find_parent
from pipelines.pages.row import Part

_SHOWN = 300  # maximum characters of a title
_SEARCHED = 4_000_000  # maximum documents whose ids are searched for those of a row


def shorten(title: str | None) -> str:
    """The first ``_SHOWN`` characters of a title; empty for None."""
    title = title or ""
    return title if len(title) <= _SHOWN else title[:_SHOWN] + " …"


def title_and_id(document_id: str, title: str | None) -> str:
    """A document in one line for a terminal: its id, after its title if it has one."""
    return printable(f"{shorten(title)} ({document_id})" if title else document_id)


class Titles:
    """Titles of documents by id. Every look-up searches the ids of all documents, whose tokens are not read.

    Attributes:
        missing: the reason why titles cannot be shown; empty if they can.
    """

    def __init__(self, documents: DocumentSet) -> None:
        self._documents = documents
        documents.read_ranges()
        self.missing = ""
        if not files.is_local(documents.folder):
            self.missing = f"titles are not shown: {documents.folder} is not on this machine; copy it"
        elif len(documents) > _SEARCHED:
            count = format_count(len(documents), "document")
            self.missing = f"titles are not shown: {documents.folder} has {count}, more than {_SEARCHED:,}"

    @cached_property
    def _table(self) -> pa.Table:
        """Ids and titles of all documents; views of the memory-mapped shards, unless these are compressed."""
        tables = []
        for number in range(len(self._documents.manifest.shards)):
            shard, reader = self._documents.shard(number)
            columns = [reader.schema.get_field_index(name) for name in ("document_id", "title")]
            options = pa.ipc.IpcReadOptions(included_fields=columns)
            tables.append(pa.ipc.open_file(shard, options=options).read_all())
        return pa.concat_tables(tables)

    def of(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the titles of those of the given documents that have one; of none if they cannot be read."""
        import pyarrow.compute as pc  # slow to import, and most documents have no titles

        if self.missing:
            return {}
        try:
            table = self._table
        except (FarspanError, OSError, pa.ArrowException) as error:  # the rows themselves can be shown
            self.missing = f"titles are not shown: {error}"
            return {}
        columns = table.filter(pc.is_in(table["document_id"], pa.array(ids, pa.string()))).to_pydict()
        return {name: title for name, title in zip(columns["document_id"], columns["title"], strict=True) if title}

    def with_titles(self, parts: Iterable[Part]) -> list[Part]:
        """Return parts of a row with the titles of their documents."""
        parts = list(parts)
        known = self.of([part.document_id for part in parts])
        return [replace(part, title=known.get(part.document_id)) for part in parts]


def find_titles(corpus: Corpus, documents: str | None = None) -> Titles | None:
    """Find the titles of the documents of a corpus, which are at the recorded place if ``documents`` is None.

    None if they have no titles, are not where they were when the corpus was made, or are recorded in a remote store.
    """
    try:
        place = documents or find_parent(corpus.folder)
        if place is None or not (documents or files.is_local(place)):
            return None
        document_set = DocumentSet(place)
        if manifest_sha256(place) != (corpus.manifest.parent or {}).get("manifest_sha256"):
            raise FarspanError(f"{os.path.join(place, NAME)}: not the documents that {corpus.folder} was made from")
    except FarspanError:
        if documents:
            raise
        return None
    return Titles(document_set) if has_titles(document_set.manifest) else None
