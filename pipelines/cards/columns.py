"""Formats of artefacts in words: a row, and the meaning of each column (docs/formats.md has the details)."""

from __future__ import annotations

from collections.abc import Mapping

ROWS: Mapping[str, str] = {
    "farspan.documents": "tokenised documents",
    "farspan.corpus": "sequences, each of parts of documents one after the other",
    "farspan.masks": "rows that say what an objective hides in the rows of a corpus",
    "farspan.vectors": "vectors of documents",
    "farspan.clusters": "vectors of documents, ordered by cluster",
    "farspan.neighbours": "documents with their nearest neighbours",
    "farspan.pairs": "questions, or summaries to be written, about documents",
    "farspan.predictions": "texts that a model generated for pairs",
}

_OF_DOCUMENT = {
    "document_id": "`source:path:record`, unique",
    "document_row": "row of the document in the documents artefact",
    "document_tokens": "number of its tokens in the tokenizer of the corpus",
    "cluster_id": "cluster of the document",
}
_OF_VECTORS = {
    **_OF_DOCUMENT,
    "shingles": "smallest hashes of the document's word 5-grams, ascending",
    "vector": "the document's vector",
}

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "farspan.documents": {
        "document_id": _OF_DOCUMENT["document_id"],
        "source": "name of the input",
        "cluster": "cluster of related documents that the input states, or null",
        "held_out": "true: kept apart for evaluation",
        "tokens": "token ids of the text, without special tokens",
        "sentence_starts": "first token of each sentence",
    },
    "farspan.corpus": {
        "sequence_id": "16 bytes, unique",
        "tokens": "token ids of all parts, without separators and special tokens",
        "document_starts": "first token of each part",
        "document_ids": "document of each part",
        "document_offsets": "first token of each part within its document",
        "document_lengths": "number of tokens of each whole document",
        "sentence_starts": "first token of each sentence and part",
        "cluster_id": "cluster of the documents, or null",
    },
    "farspan.masks": {
        "sequence_id": "that of the corpus row",
        "span_starts": "first token of each span in the corpus row's `tokens`",
        "span_lengths": "number of tokens of each span",
        "span_flags": "sum of 1 marker in source, 2 text visible there, 4 text in target, 8 text replaced in source",
        "span_scores": "score by which each span was chosen, or null",
        "span_ranks": "order of selection from 0, or null",
        "span_labels": "name of each span, such as an entity, or null",
        "replacements": "ids that replace the text of spans with flag 8, or null",
        "source_length": "positions of the rendered source",
        "target_length": "positions of the rendered target",
        "global_positions": "source positions with global attention, or null",
    },
    "farspan.vectors": _OF_VECTORS,
    "farspan.clusters": _OF_VECTORS,
    "farspan.neighbours": {
        **_OF_DOCUMENT,
        "norm": "norm of the document's vector",
        "neighbours": "rows of this shard, most similar first",
        "similarities": "inner product with each neighbour",
        "jaccards": "shared word 5-grams with each neighbour, as an estimated Jaccard index",
    },
    "farspan.pairs": {
        "pair_id": "id of the data set, unique",
        "document_ids": "the documents, in order",
        "document_rows": "rows of these documents in the documents artefact",
        "query": "token ids of the question; empty if there is none",
        "options": "token ids of the texts to choose from, or null",
        "targets": "token ids of the texts to train on",
        "references": "texts to compare predictions with",
        "split": "`train`, `validation` or `test`",
        "attributes": "further values of the data, as a JSON object",
    },
    "farspan.predictions": {
        "pair_id": "the pair",
        "text": "the generated text",
        "tokens": "the generated ids",
        "score": "log-probability of the text divided by the length penalty",
    },
}
