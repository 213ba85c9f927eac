"""Reading whole files in ranges, for the tests of all formats."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import asdict
from pathlib import Path

from corpora.readers import Range, ReadOptions, RecordBlock
from corpora.readers.selection import plan_ranges, read_records


@contextmanager
def stored(name: str, data: bytes) -> Iterator[None]:
    """Work in a folder that has a file of this name."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path(name).write_bytes(data)
        yield


def read_all(path, options=ReadOptions(), target_bytes=1 << 30, data: bytes | None = None) -> RecordBlock:  # noqa: B008
    """All blocks of all ranges of a file as one; ``data``: its contents, if it has to be written first."""
    if data is not None:
        with stored(path, data):
            return read_all(path, options, target_bytes)
    texts, keys, ids, clusters, titles, rejects = [], [], [], [], [], []
    filtered = damaged = lost = 0
    for piece in plan_ranges(str(path), options, target_bytes):
        piece = Range(**json.loads(json.dumps(asdict(piece))))  # as a task's payload goes through JSON
        position = 0
        for block in read_records(piece, options):
            assert block.read > 0 or block.lost > 0
            assert position <= block.position <= piece.bytes
            position = block.position
            texts += block.texts
            keys += block.keys
            clusters += block.clusters
            rejects += block.rejects
            filtered += block.filtered
            damaged += block.damaged
            lost += block.lost
            assert (block.ids is None) == (options.id_field is None)
            ids += block.ids or []
            assert (block.titles is None) == (options.title_field is None)
            titles += block.titles or []
    assert len(texts) == len(keys) == len(clusters)
    assert len(titles) == (len(texts) if options.title_field else 0)
    assert not ids or len(ids) == len(texts)
    return RecordBlock(
        texts,
        keys,
        ids if options.id_field else None,
        clusters,
        rejects,
        filtered,
        0,
        damaged,
        lost,
        titles if options.title_field else None,
    )


def reasons(block: RecordBlock) -> list[tuple[str, str]]:
    return [(reject.key, reject.reason) for reject in block.rejects]
