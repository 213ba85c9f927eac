"""The declaration of a format: each module of ``formats`` and ``tasks`` has one, as ``READER``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corpora.readers.blocks import BlockBuilder
    from corpora.readers.options import ReadOptions
    from corpora.readers.records import Cut, Range
    from corpora.storage.files import Files

Plan = Callable[["str", "Files", "int"], "list[Cut]"]
Read = Callable[["Range", "Files", "BlockBuilder"], Iterator[int]]
DOCUMENT_ID = "document_id"  # field of a document's id in data sets of tasks


@dataclass(frozen=True)
class Reader:
    """Functions that split and read the files of a format, and properties of the format.

    Attributes:
        plan: splits a file into ranges of about the given number of bytes.
        read: adds the records of a range to a block; repeatedly yields the bytes of the range read so far.
        fields: returns the fields of the first records, each with the amount of text in it; None for a format without
            fields.
        text_field: name of the text's field if the options leave it at ``text``.
        suffixes: suffixes of the files read in this format by default.
        native: True if native code, which damaged or malicious files can crash, reads the files; such files are never
            compressed as a whole.
        native_suffixes: suffixes of files for which ``native`` is true, if not for all.
        published: True for a data set as its authors publish it.
        beside: regular expression of the names of published files without records: summaries, tables of contents.
        records: regular expression of the names of files with records; others in a folder are skipped. Empty for all.
        own_ids: True if the reader gives each document an id, by which repeated documents are left out.
        keyed_by_place: True for pairs about documents of a format of the same name, whose ids have the file's path.
    """

    plan: Plan
    read: Read
    fields: Callable[[str, Files], dict[str, int]] | None = None
    text_field: str = "text"
    suffixes: tuple[str, ...] = ()
    native: bool = False
    native_suffixes: tuple[str, ...] = ()
    published: bool = False
    beside: str = ""
    records: str = ""
    own_ids: bool = False
    keyed_by_place: bool = False

    def resolve(self, options: ReadOptions) -> ReadOptions:
        """Return the options with the format's own field for the text, and for the id if the reader gives one."""
        if self.own_ids and options.id_field is None:
            options = replace(options, id_field=DOCUMENT_ID)
        if options.text_field == "text" != self.text_field:
            options = replace(options, text_field=self.text_field)
        return options
