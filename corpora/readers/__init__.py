"""Readers of raw files, one module of ``formats`` per format. A record is read whole or rejected with a reason."""

from corpora.readers.formats import FORMATS
from corpora.readers.options import ReadOptions
from corpora.readers.records import BLOCK_BYTES, RAW_BYTES, Range, RecordBlock, Reject

__all__ = ["BLOCK_BYTES", "FORMATS", "RAW_BYTES", "Range", "ReadOptions", "RecordBlock", "Reject"]
