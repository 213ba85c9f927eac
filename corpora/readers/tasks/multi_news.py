"""Multi-News: summaries of two to ten news articles about one event.

Source: Fabbri et al. 2019, "Multi-News"; layout of Alex-Fabbri/Multi-News: README.md, and of the hub. The format of the
same name (``corpora.readers.formats.multi_news``) reads the clusters and makes the documents. The summary of a cluster
is the line of the same number in the ``.tgt`` file beside the ``.src`` file (``train.src`` and ``train.tgt``,
``val.src.cleaned`` and ``val.tgt``, ``test.txt.src`` and ``test.txt.tgt``), or the field ``summary`` of JSON lines. The
pair's id is the split with a hash of the cluster.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

from corpora.errors import FarspanError
from corpora.readers.blocks import BlockBuilder
from corpora.readers.formats import jsonl
from corpora.readers.formats.multi_news import split_articles, with_line_ends
from corpora.readers.raw_fields import require_text
from corpora.readers.raw_tasks import Place, RawPair, RawTask, text_key
from corpora.readers.records import BadRecord, Cut, Range
from corpora.readers.streams import Line, Lines, compression, plan_lines, read_lines, whole_range
from corpora.readers.task_files import line_adder, task_reader
from corpora.storage import files

_SIZE = 1 << 20


def parse_record(record: dict[str, Any], place: Place) -> RawTask:
    """Make the pair of a JSON record."""
    return parse((require_text(record, "document"), require_text(record, "summary")), place)


def parse(texts: tuple[str, str], place: Place) -> RawTask:
    """Make the pair of a cluster and its summary; its documents are named by the place and their numbers."""
    cluster, summary = texts
    numbers = [number for number, article in enumerate(split_articles(cluster)) if article]
    if not numbers:
        raise BadRecord("empty_cluster", "no article has any text")
    if not (target := with_line_ends(summary)):
        raise BadRecord("empty_text", "the summary is empty")
    pair = RawPair(
        pair_id=f"{place.split}_{text_key(cluster)}",
        documents=tuple(f"{place.key}.{number}" for number in numbers),
        targets=(target,),
    )
    return RawTask([], [pair])


def plan(path: str, target_bytes: int) -> list[Cut]:
    """Split a file as ``plan_lines`` does."""
    if not _is_json(path):
        summaries_of(path)
    return plan_lines(path, target_bytes)


def read(piece: Range, block: BlockBuilder) -> Iterator[int]:
    """Add the pair of each line."""
    return read_lines(piece, block, line_adder(parse_record)) if _is_json(piece.path) else _read_two(piece, block)


def _read_two(piece: Range, block: BlockBuilder) -> Iterator[int]:
    """Read the lines of a range, each with the line of the same number in the file of summaries."""
    beside = summaries_of(piece.path)
    limit = block.options.max_record_bytes
    with files.open(piece.path) as source, files.open(beside) as target:
        summaries: Iterator[Line] = (line for chunk in Lines(target, whole_range(beside), limit) for line in chunk)
        lines = Lines(source, piece, limit)
        begun = False
        for chunk in lines:
            if chunk and not begun:
                begun = True
                summaries = islice(summaries, _lines_before(piece.path, chunk[0].offset), None)
            for line in chunk:
                summary = next(summaries, None)
                if not line.data.strip():
                    continue
                with block.reject_if_bad(line.offset, line.data):
                    line.check_size(limit)
                    if summary is None:
                        raise BadRecord("missing_text", "the file of summaries has fewer lines")
                    summary.check_size(limit)
                    block.add_task(line.offset, parse, (line.text(), summary.text()), line.data)
            yield lines.position


def _lines_before(path: str, offset: int) -> int:
    """Count the lines of a plain file before ``offset``; 0 for a compressed file, which is read from its beginning."""
    if compression(path) or not offset:
        return 0
    with files.open(path) as file:
        return sum(piece.count(b"\n") for piece in _pieces(file, offset))


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0 and (piece := file.read(min(_SIZE, size))):
        yield piece
        size -= len(piece)


def summaries_of(path: str) -> str:
    """Return the ``.tgt`` file of a ``.src`` file."""
    folder, name = posixpath.split(path)
    if ".src" not in name:
        raise FarspanError(f"{path}: not a file of Multi-News; give .src files beside their .tgt files, or JSON lines")
    wanted = name.replace(".src", ".tgt")
    for candidate in (wanted, wanted.replace(".cleaned", "")):
        try:
            files.size(beside := posixpath.join(folder, candidate))
        except OSError:
            continue
        return beside
    raise FarspanError(f"{path}: no summaries beside it; put {wanted} there")


def _is_json(path: str) -> bool:
    name = path if compression(path) is None else path.rpartition(".")[0]
    return name.lower().endswith(jsonl.READER.suffixes)


READER = task_reader(plan, read, r"(?!.*\.tgt).*\.(src|jsonl|json|ndjson)(\..*)?", "document", keyed_by_place=True)
