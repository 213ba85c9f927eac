"""CC-Stories and similar plain text: many documents, with a separating line between them.

The line is blank, as in RoBERTa's preparation of this corpus, or equals ``separator`` (``=====``, ``<|endoftext|>``)
up to surrounding white space. With a separator, stories keep their blank lines.
Source: Trinh and Le 2018, "A Simple Method for Commonsense Reasoning", section 5.3.
"""

from __future__ import annotations

from collections.abc import Iterator

from corpora.readers.blocks import BlockBuilder, Reader
from corpora.readers.formats.text import gather_lines
from corpora.readers.records import Range
from corpora.readers.streams import Lines, compression, plan_lines
from corpora.storage import files


def read(piece: Range, block: BlockBuilder) -> Iterator[int]:
    """Read each story as a record; its place is the offset of its first line.

    A story belongs to the range in which the separator before it starts, so ranges may start anywhere.
    """
    separator = (block.options.separator or "").strip().encode()
    with files.open(piece.path) as file, gather_lines(block) as story:
        # a story may end after the range
        whole = Range(piece.path, piece.format, piece.start, files.size(piece.path), piece.bytes, piece.size)
        lines = Lines(file, whole, block.options.max_record_bytes)
        inside = piece.start == 0
        plain = compression(piece.path) is None
        for chunk in lines:
            for line in chunk:
                if line.data.strip() == separator:
                    story.add()
                    inside = True
                    if plain and line.offset >= piece.stop:
                        return
                elif inside:
                    story.append(line)
                elif plain and line.offset >= piece.stop:
                    return
            yield lines.position


READER = Reader(plan_lines, read, published=True)
