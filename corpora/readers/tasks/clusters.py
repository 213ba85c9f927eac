"""Summaries about documents of a format of the same name (MediaSum, Multi-News), and related work (Multi-XScience)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice

from corpora.errors import FarspanError
from corpora.readers import json_array
from corpora.readers.blocks import BlockBuilder
from corpora.readers.formats import jsonl
from corpora.readers.formats.multi_news import split_articles, with_line_ends
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawRecord, RawTask, text_key
from corpora.readers.records import BadRecord, Cut, Range
from corpora.readers.streams import Line, Lines, as_object, compression, plan_lines, read_lines, whole_range
from corpora.readers.task_files import json_object, json_records, line_adder, task_reader
from corpora.storage import files

_SPLITS = "train_val_test_split.json"
_CITATION = re.compile(r"@cite_\d+")
_SIZE = 1 << 20


def parse_interview(record: RawRecord, place: Place, splits: Mapping[str, str] | None = None) -> RawTask:
    """Parse the summary of an interview of MediaSum; ``splits`` has the split of each id.

    Source and file as in ``corpora.readers.formats.mediasum``. ``train_val_test_split.json`` beside it, ``{"train":
    [id], "val": [id], "test": [id]}``, gives the splits; without it, every interview is in the split of the file's
    name. An interview that no split names is rejected.
    """
    key = record.id_of("id")
    if splits is not None and key not in splits:
        raise BadRecord("unknown_split", f"{_SPLITS} names no split of {key}")
    target, split = record.require_text("summary"), splits[key] if splits else None
    return RawTask([], [RawPair(pair_id=key, documents=(place.key,), targets=(target,), split=split)])


def read_interviews(piece: Range, block: BlockBuilder) -> Iterator[int]:
    """Add the pair of each interview."""
    splits: dict[str, str] | None = None
    try:
        listed = json_object(block.place("0").read_beside(_SPLITS))
        splits = {key: split for split in listed for key in listed.list_of(split, str)}
    except BadRecord as bad:
        if bad.reason != "missing_file":
            raise
    return json_array.read(piece, block, line_adder(partial(parse_interview, splits=splits)))


def parse_cluster_record(record: RawRecord, place: Place) -> RawTask:
    """Make the pair of a JSON record of Multi-News."""
    return parse_cluster((record.require_text("document"), record.require_text("summary")), place)


def parse_cluster(texts: tuple[str, str], place: Place) -> RawTask:
    """Make the pair of two to ten news articles about one event, and their summary.

    Source: Fabbri et al. 2019, "Multi-News"; layout of Alex-Fabbri/Multi-News: README.md, and of the hub. The format of
    the same name (``corpora.readers.formats.multi_news``) reads the clusters and makes the documents, which are named
    by the place and their numbers. The summary of a cluster is the line of the same number in the ``.tgt`` file beside
    the ``.src`` file (``train.src`` and ``train.tgt``, ``val.src.cleaned`` and ``val.tgt``, ``test.txt.src`` and
    ``test.txt.tgt``), or the field ``summary`` of JSON lines. The pair's id is the split with a hash of the cluster.
    """
    cluster, summary = texts
    numbers = [number for number, article in enumerate(split_articles(cluster)) if article]
    if not numbers:
        raise BadRecord("empty_cluster", "no article has any text")
    if not (target := with_line_ends(summary)):
        raise BadRecord("empty_text", "the summary is empty")
    documents = tuple(f"{place.key}.{number}" for number in numbers)
    pair = RawPair(pair_id=f"{place.split}_{text_key(cluster)}", documents=documents, targets=(target,))
    return RawTask([], [pair])


def plan_clusters(path: str, target_bytes: int) -> list[Cut]:
    """Split a file as ``plan_lines`` does."""
    if not _is_json(path):
        _summaries_of(path)
    return plan_lines(path, target_bytes)


def read_clusters(piece: Range, block: BlockBuilder) -> Iterator[int]:
    """Add the pair of each line; in a ``.src`` file, with the line of the same number in the file of summaries."""
    if _is_json(piece.path):
        yield from read_lines(piece, block, line_adder(parse_cluster_record))
        return
    beside = _summaries_of(piece.path)
    limit = block.options.max_record_bytes
    with files.open(piece.path) as source, files.open(beside) as target:
        summaries: Iterator[Line] = (line for chunk in Lines(target, whole_range(beside), limit) for line in chunk)
        lines = Lines(source, piece, limit)
        begun = False
        for chunk in lines:
            if chunk and not begun:
                begun = True
                summaries = islice(summaries, _count_lines(piece.path, chunk[0].offset), None)
            for line in chunk:
                summary = next(summaries, None)
                if not line.data.strip():
                    continue
                with block.reject_if_bad(line.offset, line.data):
                    line.check_size(limit)
                    if summary is None:
                        raise BadRecord("missing_text", "the file of summaries has fewer lines")
                    summary.check_size(limit)
                    block.add_task(line.offset, parse_cluster, (line.text(), summary.text()), line.data)
            yield lines.position


def _count_lines(path: str, offset: int) -> int:
    """Count the lines of a plain file before ``offset``; 0 for a compressed file, which is read from its beginning."""
    count = 0
    if offset and compression(path) is None:
        with files.open(path) as file:
            while offset > 0 and (piece := file.read(min(_SIZE, offset))):
                count += piece.count(b"\n")
                offset -= len(piece)
    return count


def _summaries_of(path: str) -> str:
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


def parse_related_work(record: RawRecord, place: Place) -> RawTask:
    """Parse the related work of a paper: its abstract and those of the papers that it cites are the documents.

    Source: Lu et al. 2020, "Multi-XScience"; layout of the hub and of PRIMERA's script. Not checked against the
    original files. JSON arrays or lines ``{train,val,test}.json``::

        {"aid": "1", "mid": "2", "abstract": "...", "related_work": "... @cite_1 ...",
         "ref_abstract": {"@cite_1": {"mid": "3", "abstract": "..."}}}

    On the hub, ``ref_abstract`` has lists: ``{"cite_N": ["@cite_1"], "mid": ["3"], "abstract": ["..."]}``. Cited papers
    without an abstract are left out. In the target, ``@cite_1`` becomes ``cite``, as in PRIMERA.
    """
    key, cited = record.id_of("aid"), record.object_of("ref_abstract")
    if isinstance(cited.get("cite_N"), list):
        abstracts = dict(zip(cited.list_of("cite_N", str), cited.list_of("abstract", str), strict=False))
    else:
        abstracts = {name: RawRecord(as_object(paper)).optional_text("abstract") for name, paper in cited.items()}
    documents = [RawDocument(key, record.require_text("abstract"))]
    documents += [RawDocument(f"{key}#{name.lstrip('@')}", text) for name, text in abstracts.items() if text.strip()]
    target = " ".join(_CITATION.sub("cite", record.require_text("related_work")).split())
    return RawTask.of(documents, pair_id=key, targets=(target,))


READERS = {
    "mediasum": task_reader(
        json_array.plan,
        read_interviews,
        records=r"(?!train_val_test_split).*\.(json|jsonl)",
        keyed_by_place=True,
    ),
    "multi-news": task_reader(
        plan_clusters,
        read_clusters,
        records=r"(?!.*\.tgt).*\.(src|jsonl|json|ndjson)(\..*)?",
        text_field="document",
        keyed_by_place=True,
    ),
    "multi-xscience": json_records(parse_related_work, r".*\.(json|jsonl)(\.(gz|bz2|xz|zst))?"),
}
