"""Documents of given texts."""

from __future__ import annotations

import os

from corpora.schemas.documents import HeldOut, documents_schema, tokenize_documents
from corpora.storage.manifest import Manifest, Receipt, fold
from corpora.storage.manifest_file import list_files, write_manifest
from corpora.storage.ragged import Ragged
from corpora.storage.shards import shard_name, write_shard
from corpora.text.sentences import load_splitter
from tests.artefacts import small_tokenizer, tokenizer_entry


def documents_of(texts, folder, source="test", held_out=0.0):
    """A documents artefact in one shard, with the sentences that the default splitter finds."""
    tokenizer = small_tokenizer()
    ids = [f"{source}:{row}" for row in range(len(texts))]
    batch = tokenize_documents(ids, texts, source, tokenizer, load_splitter("nupunkt"), HeldOut(held_out, 0))
    lengths = Ragged.from_arrow(batch.column("tokens")).lengths
    held = batch.column("held_out").to_numpy(zero_copy_only=False)
    schema = documents_schema(tokenizer.vocab_size)
    with write_shard(os.path.join(folder, "shards", shard_name(0, 1)), schema, 16) as (writer, info):
        writer.write(batch)
    totals = {
        "documents": len(texts),
        "held_out_documents": int(held.sum()),
        "tokens": int(lengths.sum()),
        "held_out_tokens": int(lengths[held].sum()),
        "max_tokens": int(lengths.max(initial=0)),
    }
    tokenizer.save(os.path.join(folder, "tokenizer"))
    head = Manifest(
        "farspan.documents",
        {},
        0,
        16,
        tokenizer_entry(),
        **fold([Receipt("0", tuple(info), totals)]),
        files=list_files(folder),
    )
    write_manifest(folder, head)
    return folder
