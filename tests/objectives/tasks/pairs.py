"""Pair batches for tests of tasks, made from lists."""

from collections.abc import Sequence

import numpy as np

from corpora.schemas.pairs import PairBatch
from corpora.storage.ragged import Ragged
from objectives.tasks.protocol import PairFacts, Task

OWNED = {"<bos>": 0, "<pad>": 1, "<eos>": 2, "<unk>": 3}
BOS, PAD, EOS, SEPARATOR = 0, 1, 2, 400
FACTS = PairFacts(400, OWNED)


def pair_batch(
    documents: Sequence[Sequence[Sequence[int]]],
    queries: Sequence[Sequence[int]] | None = None,
    targets: Sequence[Sequence[Sequence[int]]] | None = None,
    kind: type = np.uint16,
) -> PairBatch:
    """Pairs with the given documents, queries and targets; equal documents are stored once."""
    distinct: list[tuple[int, ...]] = []
    rows = []
    for about in documents:
        names = [tuple(document) for document in about]
        distinct += [name for name in dict.fromkeys(names) if name not in distinct]
        rows.append([distinct.index(name) for name in names])
    queries = [[]] * len(rows) if queries is None else queries
    targets = [[[7]]] * len(rows) if targets is None else targets
    return PairBatch(
        pair_ids=[f"pair-{row}" for row in range(len(rows))],
        document_tokens=Ragged.from_rows(distinct, kind),
        pair_documents=Ragged.from_rows(rows, np.int64),
        queries=Ragged.from_rows(queries, kind),
        targets=Ragged.from_rows([target for own in targets for target in own], kind),
        target_offsets=np.cumsum([0, *map(len, targets)]),
    )


def sources(task: Task, batch: PairBatch) -> list[list[int]]:
    """The source of each pair, without padding."""
    examples = task.render(batch, np.zeros(len(batch), np.int64), task.validate(FACTS)).examples
    assert (examples.source_ids[~examples.source_mask] == PAD).all()
    return [row[:size].tolist() for row, size in zip(examples.source_ids, examples.source_lengths, strict=True)]
