"""Principal sentences on one core, from text: ROUGE-1 of every sentence against the rest of its document.

The peers score strings, a pair at a time: Google's ``rouge_score`` and, where it is installed, ``rouge-score-rs``, the
same in Rust. Scores and choices of all sides are checked to be equal first. Documents are runs of real sentences.
"""

from __future__ import annotations

import one_thread  # isort: skip  (before numpy)

import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
from report import HEADINGS, Comparison, arguments, comparison_rows, in_turn, machine, publish
from rouge_score.rouge_scorer import RougeScorer
from text import real_documents, sentences_of

from corpora.storage.ragged import Ragged
from objectives.rouge.sentence_scores import select_greedily, sentence_scores
from objectives.rouge.words import split_words

try:
    from rouge_score_rs import RougeScorer as RustScorer
except ImportError:
    RustScorer = None

GOALS = {20: (200, 8), 100: (1_500, 45), 500: (6_000, 200)}  # least ratios to rouge_score and to Rust
SENTENCES = 40_000  # of all documents of a size, for our side; the peers get fewer documents
PEER_PAIRS, RUST_PAIRS = 500, 4_000  # sentences scored in a round
CALLS = 5  # of our side in a round, which is short
SEQ_SIZE, SEQ_SHARE, SEQ_GOAL = 100, 0.3, 1_000
GROWTH = (1_000, 10_000, 100_000)
GROWTH_PICKS = 30

Document = list[str]


def block(documents: list[Document]) -> tuple[list[str], Ragged]:
    """Texts, and where their sentences begin."""
    starts = [np.cumsum([0, *map(len, document)])[:-1] for document in documents]
    return ["".join(document) for document in documents], Ragged.from_rows(starts, np.int64)


def ours(texts: list[str], starts: Ragged) -> Ragged:
    return sentence_scores(split_words(texts, starts))


def repeat(run: Callable[..., object], *arguments: object) -> None:
    for _ in range(CALLS):
        run(*arguments)


def rest_of(document: Document, left_out: set[int]) -> str:
    return "".join(sentence for i, sentence in enumerate(document) if i not in left_out)


def peer(scorer: Any, documents: list[Document]) -> list[list[float]]:
    return [
        [scorer.score(rest_of(d, {i}), sentence)["rouge1"].fmeasure for i, sentence in enumerate(d)] for d in documents
    ]


def ours_greedily(texts: list[str], starts: Ragged) -> Ragged:
    return select_greedily(split_words(texts, starts), (starts.lengths * SEQ_SHARE).astype(np.int64))[0]


def peer_greedily(scorer: Any, documents: list[Document]) -> list[list[int]]:
    """Every sentence left, with those taken, against the rest, for each choice."""
    chosen = []
    for document in documents:
        taken: list[int] = []
        for _ in range(int(len(document) * SEQ_SHARE)):
            selected = "".join(document[i] for i in taken)
            scores = {
                i: scorer.score(rest_of(document, {*taken, i}), selected + sentence)["rouge1"].fmeasure
                for i, sentence in enumerate(document)
                if i not in taken
            }
            taken.append(max(scores, key=lambda i: (scores[i], -i)))
        chosen.append(taken)
    return chosen


def ind(pool: list[str], size: int, rounds: int) -> list[Comparison]:
    """Ind on documents of ``size`` sentences."""
    documents = [pool[i : i + size] for i in range(0, SENTENCES, size)]
    texts, starts = block(documents)
    google, few, some = (
        RougeScorer(["rouge1"]),
        documents[: max(PEER_PAIRS // size, 1)],
        documents[: RUST_PAIRS // size],
    )
    assert peer(google, few) == [row.tolist() for row in map(ours(*block(few)).__getitem__, range(len(few)))]
    runs: dict[str, Callable[[], object]] = {
        "ours": lambda: repeat(ours, texts, starts),
        "google": lambda: peer(google, few),
    }
    counts = {"ours": CALLS * len(documents), "google": len(few), "rust": len(some)}
    if RustScorer:
        rust = RustScorer(["rouge1"])
        assert peer(rust, few) == peer(google, few)
        runs["rust"] = lambda: peer(rust, some)
    seconds = in_turn(runs, rounds)
    rates = {name: [counts[name] * 60 / second for second in values] for name, values in seconds.items()}
    what = f"Ind, {size} sentences"
    goals = GOALS[size]
    rows = [Comparison(what, "rouge_score", "documents/min", rates["ours"], rates["google"], goals[0])]
    if RustScorer:
        rows.append(Comparison(what, "rouge-score-rs", "documents/min", rates["ours"], rates["rust"], goals[1]))
    return rows


def seq(pool: list[str], rounds: int) -> list[Comparison]:
    """Seq, where even the Rust way takes a good part of a second for a document."""
    documents = [pool[i : i + SEQ_SIZE] for i in range(0, SENTENCES, SEQ_SIZE)]
    texts, starts = block(documents)
    rust, few = RustScorer(["rouge1"]), documents[:2]
    assert peer_greedily(rust, few) == [row.tolist() for row in map(ours_greedily(*block(few)).__getitem__, range(2))]
    seconds = in_turn(
        {"ours": lambda: repeat(ours_greedily, texts, starts), "rust": lambda: peer_greedily(rust, few)}, rounds
    )
    rates = [
        [count * 60 / s for s in seconds[name]]
        for name, count in (("ours", CALLS * len(documents)), ("rust", len(few)))
    ]
    what = f"Seq, {SEQ_SHARE:.0%} of {SEQ_SIZE} sentences"
    return [Comparison(what, "rouge-score-rs", "documents/min", *rates, SEQ_GOAL)]


def growth(pool: list[str]) -> list[tuple[str, ...]]:
    """Microseconds a sentence of one document."""
    rows = []
    for size in GROWTH:
        texts, starts = block([[pool[i % len(pool)] for i in range(size)]])
        words = split_words(texts, starts)
        picks = np.array([GROWTH_PICKS])
        seconds = (
            best_of(3, split_words, texts, starts),
            best_of(3, sentence_scores, words),
            best_of(3, select_greedily, words, picks),
        )
        rows.append((f"{size:,}", f"{len(texts[0]) / size:.0f}", *(f"{1e6 * s / size:.2f}" for s in seconds)))
    return rows


def best_of(count: int, run: Callable[..., object], *arguments: object) -> float:
    """Seconds of the fastest of ``count`` runs."""
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        run(*arguments)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], rounds=3)
    options = parser.parse_args()
    environment = machine("numpy", "numba", "rouge_score", *(["rouge-score-rs"] if RustScorer else []))
    one_thread.take_one_core()
    if not RustScorer:
        print("rouge-score-rs is not installed, and so not measured: pip install rouge-score-rs")
    sentences = (sentence for document in real_documents() for sentence in sentences_of(document))
    pool = list(islice(sentences, max(SENTENCES, GROWTH[-1])))
    comparisons = [row for size in GOALS for row in ind(pool, size, options.rounds)]
    if RustScorer:
        comparisons += seq(pool, options.rounds)
    publish(
        "ROUGE-1 of sentences against the rest, from text, one core",
        HEADINGS,
        comparison_rows(comparisons),
        environment,
        options.json,
        {row.ours + " / " + row.peer: [list(row.our_rates), list(row.peer_rates)] for row in comparisons},
    )
    publish(
        "Growth with the sentences of one document: microseconds a sentence",
        ("sentences", "letters each", "words", "Ind", f"Seq, {GROWTH_PICKS} chosen"),
        growth(pool),
        environment,
        None,
        {},
    )


if __name__ == "__main__":
    main()
