"""Documents of given texts."""

from __future__ import annotations

from corpora.schemas.documents import HeldOut, tokenize_documents
from corpora.storage.ragged import Ragged
from corpora.text.sentences import load_splitter
from tests.artefacts import finish_artefact, small_tokenizer, write_part


def documents_of(texts, folder, source="test", held_out=0.0):
    """A documents artefact in one shard, with the sentences that the default splitter finds."""
    tokenizer = small_tokenizer()
    ids = [f"{source}:{row}" for row in range(len(texts))]
    batch = tokenize_documents(ids, texts, source, tokenizer, load_splitter("nupunkt"), HeldOut(held_out, 0))
    lengths = Ragged.from_arrow(batch.column("tokens")).lengths
    held = batch.column("held_out").to_numpy(zero_copy_only=False)
    totals = {
        "documents": len(texts),
        "held_out_documents": int(held.sum()),
        "tokens": int(lengths.sum()),
        "held_out_tokens": int(lengths[held].sum()),
        "max_tokens": int(lengths.max(initial=0)),
    }
    return finish_artefact(folder, "farspan.documents", {}, [write_part(folder, 0, 1, batch, totals)])
