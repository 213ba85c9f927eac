"""Jobs from text to masks on any file system, and comparison of what they make."""

import hashlib

from corpora.storage import files
from corpora.storage.files import read_bytes
from corpora.storage.manifest_file import read_manifest

SHARDS = "4"


def chain(root, tokenizer, workers=1):
    """Raw text to documents, documents to a corpus, the corpus to masks."""
    documents, corpus, masks = (f"{root}/{kind}" for kind in ("documents", "corpus", "masks"))
    every = [f"--workers={workers}"]
    yield ["documents", "--input", f"{root}/raw", "--tokenizer", tokenizer, "--held-out", "0.1",
           "--task-bytes", "8000", "--output", documents, *every]  # fmt: skip
    yield ["corpus", "random", "--documents", documents, "--sequence-length", "256", "--shards", SHARDS,
           "--output", corpus, *every]  # fmt: skip
    yield ["mask", "span", "--preset", "t5", "--corpus", corpus, "--output", masks, *every]


def same_artefact(found, expected):
    """Every shard has the bytes that it has in the other artefact, and so the manifests describe."""
    manifests = [read_manifest(found), read_manifest(expected)]
    assert manifests[0].shards == manifests[1].shards
    for shard in manifests[1].shards:
        assert hashlib.sha256(read_bytes(f"{found}/shards/{shard.name}")).hexdigest() == shard.sha256
    assert manifests[0].job == manifests[1].job
    assert manifests[0].counts == manifests[1].counts


def files_of(folder):
    return [path.removeprefix(f"{folder}/") for path in files.walk(folder)]
