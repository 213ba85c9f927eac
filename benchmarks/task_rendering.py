"""Pairs as batches of 16,384 positions on one core: tasks against the data sets of published systems, told again.

The peers make one row at a time of torch tensors and pad them to a batch, as fairseq and PRIMERA's loader do. They get
tokens of the type they work on, so they convert nothing. Both sides give the same ids, which is checked first.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip  (before numpy)

from collections.abc import Callable

import numpy as np
import torch
from report import HEADINGS, Comparison, arguments, comparison_rows, in_turn, machine, publish

from corpora.schemas.pairs import PairBatch
from corpora.storage.ragged import Ragged
from objectives.tasks.protocol import PairFacts, load_task

VOCAB, BOS, PAD, EOS, SEPARATOR = 50_265, 0, 1, 2, 50_265
CALLS = 20  # of farspan in a round
TARGET = 200


def bart_ls(documents: list[torch.Tensor], query: torch.Tensor) -> torch.Tensor:
    """Xiong et al.'s ``MixedSentencesDataset`` and the truncation behind it."""
    (source,) = documents
    question = torch.cat([query.new([BOS]), query[:30], query.new([EOS])])
    size = 1024 - len(question) - 1
    blocks = [
        torch.cat([question, source[start : start + size], source.new([EOS])]) for start in range(0, len(source), size)
    ]
    joined = torch.cat(blocks)
    while joined[-1] == EOS:
        joined = joined[:-1]
    return torch.cat([joined[:16383], joined.new([EOS])])


def primera(documents: list[torch.Tensor], query: torch.Tensor) -> torch.Tensor:
    """Xiao et al.'s ``concat_start_wdoc_global`` behind the tokenizer."""
    share = 16384 // len(documents) - 2
    parts = [part for document in documents for part in (document[:share], document.new([SEPARATOR]))]
    return torch.cat([query.new([BOS]), *parts, query.new([EOS])])


def padded(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


class Sides:
    """Both sides over the same pairs."""

    def __init__(self, preset: str, peer: Callable[..., torch.Tensor], batch: int, documents: int, length: int) -> None:
        rng = np.random.default_rng(0)
        texts = [rng.integers(3, VOCAB, length) for _ in range(batch * documents)]
        queries = [rng.integers(3, VOCAB, 20) for _ in range(batch)]
        targets = [rng.integers(3, VOCAB, TARGET) for _ in range(batch)]
        self.peer_rows = peer
        self.tensors = [
            (
                [torch.from_numpy(text) for text in texts[row * documents : (row + 1) * documents]],
                torch.from_numpy(query),
            )
            for row, query in enumerate(queries)
        ]
        self.answers = [torch.from_numpy(target) for target in targets]
        self.pairs = PairBatch(
            pair_ids=[str(row) for row in range(batch)],
            document_tokens=Ragged.from_rows(texts, np.uint16),
            pair_documents=Ragged.from_lengths(np.arange(batch * documents), np.full(batch, documents)),
            queries=Ragged.from_rows(queries, np.uint16),
            targets=Ragged.from_rows(targets, np.uint16),
            target_offsets=np.arange(batch + 1),
        )
        self.task = load_task("text_to_text", preset, {"source_length": 16384})
        self.special = self.task.validate(PairFacts(VOCAB, {"<bos>": BOS, "<pad>": PAD, "<eos>": EOS}))
        self.chosen = np.zeros(batch, np.int64)

    def farspan(self) -> tuple[np.ndarray, np.ndarray]:
        examples = self.task.render(self.pairs, self.chosen, self.special).examples
        return examples.source_ids, examples.target_ids

    def peer(self) -> tuple[torch.Tensor, torch.Tensor]:
        sources = padded([self.peer_rows(documents, query) for documents, query in self.tensors])
        return sources, padded([torch.cat([answer, answer.new([EOS])]) for answer in self.answers])

    def check(self) -> None:
        for ours, peer in zip(self.farspan(), self.peer(), strict=True):
            assert np.array_equal(ours, peer.numpy())


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=10)
    parser.add_argument("--batch", type=int, default=8, help="pairs in a batch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    environment = machine("numpy", "numba", "torch")
    comparisons, measured = [], {}
    for name, peer, documents, length in (("bart_ls", bart_ls, 1, 60_000), ("primera", primera, 8, 3_000)):
        sides = Sides(name, peer, options.batch, documents, length)
        sides.check()

        def several(sides: Sides = sides) -> None:
            for _ in range(CALLS):
                sides.farspan()

        seconds = in_turn({"farspan": several, "peer": sides.peer}, options.rounds)
        ours = [options.batch * CALLS / second for second in seconds["farspan"]]
        theirs = [options.batch / second for second in seconds["peer"]]
        comparisons.append(Comparison(f"text_to_text, {name}", f"data set of {name}", "pairs/s", ours, theirs))
        measured[name] = {"farspan": ours, "peer": theirs}
    title = f"Rendering of pairs to 16,384 positions, batches of {options.batch}, one thread"
    publish(title, HEADINGS, comparison_rows(comparisons), environment, options.json, measured)


if __name__ == "__main__":
    main()
