"""Reading whole files in ranges, for the tests of all formats."""

import io
import json
from dataclasses import asdict

from corpora.readers import Range, ReadOptions, RecordBlock
from corpora.readers.selection import plan_ranges, read_records
from corpora.storage import files
from corpora.storage.stores.local_disk import FileState


def read_all(path, options=ReadOptions(), target_bytes=1 << 30, files=files) -> RecordBlock:  # noqa: B008
    """All blocks of all ranges as one; every range goes through JSON, as a task's payload does."""
    texts, keys, ids, clusters, titles, rejects = [], [], [], [], [], []
    filtered = damaged = lost = 0
    for piece in plan_ranges(str(path), files, options, target_bytes):
        piece = Range(**json.loads(json.dumps(asdict(piece))))
        position = 0
        for block in read_records(piece, files, options):
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


class InMemory:
    """One file's bytes, or a stream made on demand, under any name."""

    def __init__(self, data=b"", stream=None, size=None):
        self._data, self._stream, self._size = data, stream, size

    def open(self, path):
        return self._stream() if self._stream else io.BufferedReader(io.BytesIO(self._data))

    def size(self, path):
        return len(self._data) if self._size is None else self._size

    def state(self, path):
        return FileState(self.size(path), "")
