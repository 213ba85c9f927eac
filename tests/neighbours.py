"""A small finished neighbours artefact over a documents artefact, made without any job, by plain exact search."""

import numpy as np
import pyarrow as pa

from corpora.schemas.vectors import PARTS_OF_CLUSTER, neighbours_schema
from corpora.storage.manifest_file import read_manifest
from tests.artefacts import all_rows, finish_artefact, write_part


def training_documents(documents: str) -> list[dict]:
    """``document_id``, ``row`` and ``tokens`` of every document that is not held out."""
    return [{**row, "row": number} for number, row in enumerate(all_rows(documents)) if not row["held_out"]]


def make_neighbours(
    folder: str,
    documents: str,
    clusters: int = 2,
    k: int = 10,
    seed: int = 0,
    jaccard: float = 0.1,
    vectors: np.ndarray | None = None,
) -> str:
    """Random unit vectors of 8 dimensions; shard c holds first-level cluster c, of parts 0 and 1.

    Args:
        vectors: ``(documents, d)`` float32 of norm 1, in place of random ones; a shard is then one cluster.
    """
    given = vectors
    rng = np.random.default_rng(seed)
    found = training_documents(documents)
    cluster = np.sort(
        rng.integers(0, clusters, len(found)) * PARTS_OF_CLUSTER
        + rng.integers(0, 2 if vectors is None else 1, len(found))
    )
    order = rng.permutation(len(found))  # which document has which place
    receipts = []
    for shard in range(clusters):
        columns: dict[str, list] = {field.name: [] for field in neighbours_schema()}
        for number in np.unique(cluster[cluster // PARTS_OF_CLUSTER == shard]).tolist():
            members = sorted((found[i] for i in order[cluster == number]), key=lambda row: row["row"])
            first = len(columns["document_id"])
            vectors = rng.normal(size=(len(members), 8)).astype(np.float32)
            if given is not None:
                vectors = given[[row["row"] for row in members]]
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            products = (vectors @ vectors.T).astype(np.float16)
            np.fill_diagonal(products, -np.inf)
            best = np.argsort(-products.astype(np.float32), axis=1, kind="stable")[:, : min(k, len(members) - 1)]
            columns["document_id"] += [row["document_id"] for row in members]
            columns["document_row"] += [row["row"] for row in members]
            columns["document_tokens"] += [len(row["tokens"]) for row in members]
            columns["cluster_id"] += [number] * len(members)
            columns["norm"] += [1.0] * len(members)
            columns["neighbours"] += (best + first).tolist()
            columns["similarities"] += list(np.take_along_axis(products, best, axis=1))
            columns["jaccards"] += list(np.full(best.shape, jaccard, np.float16))
        schema = neighbours_schema()
        batch = pa.record_batch([pa.array(columns[field.name], field.type) for field in schema], schema=schema)
        totals = {"documents": len(batch), "tokens": sum(columns["document_tokens"])}
        counts = {"made": {"read": len(batch), "written": len(batch)}}
        receipts.append(write_part(folder, shard, clusters, batch, totals, counts))
    tokenizer, config = read_manifest(documents).tokenizer, {"split": "train", "k": k}
    return finish_artefact(folder, "farspan.neighbours", config, receipts, documents, seed, tokenizer=tokenizer)
