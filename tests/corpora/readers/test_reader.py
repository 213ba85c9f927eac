"""Declarations of formats."""

from __future__ import annotations

from corpora.readers import FORMATS, ReadOptions
from corpora.readers.reader import DOCUMENT_ID, Reader
from corpora.readers.selection import formats_by_suffix, reader


def test_every_format_declares_itself_and_no_suffix_is_declared_twice():
    readers = [reader(format) for format in FORMATS]
    assert all(isinstance(found, Reader) for found in readers)
    suffixes = [suffix for found in readers for suffix in found.suffixes]
    assert len(suffixes) == len(set(suffixes)) == len(formats_by_suffix())


def test_a_format_resolves_what_the_options_leave_open():
    read = Reader(None, None, text_field="body", own_ids=True)
    assert read.resolve(ReadOptions()) == ReadOptions(text_field="body", id_field=DOCUMENT_ID)
    own = ReadOptions(text_field="content", id_field="key")
    assert read.resolve(own) == own
    assert Reader(None, None).resolve(ReadOptions()) == ReadOptions()
