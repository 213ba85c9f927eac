"""Principal sentences in plain Python, one row at a time and one rule after the other, on top of ``rouge_score``."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenize import tokenize

from corpora.keyed import id_keys
from corpora.schemas.sequences import SequenceBatch
from objectives.api.masks import IN_SOURCE, IN_TARGET, REPLACED, VISIBLE
from tests.objectives.rouge.plain_rouge import ngrams

Row = list[tuple[int, int, int, float, int]]  # start, length, flags, score, rank of each span
_ROUGE_1 = RougeScorer(["rouge1"], use_stemmer=False)
_FLAGS = (IN_SOURCE | IN_TARGET, REPLACED | IN_TARGET, VISIBLE | IN_TARGET, IN_TARGET)


def plain_row(
    batch: SequenceBatch, row: int, key: bytes, o: dict[str, Any], decode: Callable, stopwords: Sequence[str] = ()
) -> tuple[Row, list[int]]:
    """Spans and replacements of one row under the options ``o`` of ``PrincipalSentences``."""
    tokens, size = batch.tokens[row], len(batch.tokens[row])
    borders = [*batch.document_starts[row].tolist(), size]
    cuts = sorted({*borders, *batch.sentence_starts[row].tolist()})
    spans = [(a, b) for a, b in pairwise(cuts) if a < b]
    texts = [[s for s in spans if a <= s[0] < b] for a, b in pairwise(borders)]
    if o["scope"] == "sequence":
        texts = [spans]
    whole, places = decode(tokens)
    places = [*places, len(whole)]
    queues, draws = [], {}
    for number, text in enumerate(texts):
        if o["words"] == "tokens":
            words = [[str(token) for token in tokens[a:b]] for a, b in text]
        else:
            words = [tokenize(whole[places[a] : places[b]], None) for a, b in text]
            words = [[word for word in sentence if word not in stopwords] for sentence in words]
        stream = _stream(key, batch.sequence_id(row), number, len(text))
        chosen = choose(words, stream, o)
        queues.append([(score, text[i]) for i, score in chosen])
        draws |= {span: (bits, text) for span, bits in zip(text, stream[1:], strict=True)}
    order = _merge(queues, o["ties"])
    room = None if o["target_length"] is None else o["target_length"] - 1 - o["begin"]
    kept: Row = []
    left = room
    for score, (a, b) in order:
        if left is not None and b - a > left:
            if o["when_full"] == "stop":
                break
            continue
        left = None if left is None else left - (b - a)
        kept.append((a, b - a, _flags(draws[a, b][0], o["treatments"]), score, len(kept)))
    if order and not kept:
        score, (a, b) = order[0]
        kept = [(a, room or 0, _flags(draws[a, b][0], o["treatments"]), score, 0)]
    kept.sort()
    ends = dict(spans)
    replacements: list[int] = []
    for start, length, flags, _, _ in kept:
        if flags & REPLACED:
            bits, text = draws[start, ends[start]]
            a, b = text[int(bits[3]) % len(text)]
            replacements += [int(tokens[a + i % (b - a)]) for i in range(length)]
    return kept, replacements


def choose(words: list[list[str]], stream: np.ndarray, o: dict[str, Any]) -> list[tuple[int, float]]:
    """(sentence, score) of one text in order of choice."""
    n, strategy = len(words), o["strategy"]
    ratio, single = o["ratio"], o["precision"] == "float32"
    if isinstance(ratio, list):
        ratio = ratio[0] + (ratio[1] - ratio[0]) * _uniform(stream[0][0])
    share = float(np.float32(n) * np.float32(ratio)) if single else n * ratio
    picks = min(max(math.ceil(share) if o["rounding"] == "up" else int(share), 1), n)
    if strategy == "hybrid":
        strategy = ("random", "lead", "ind")[int(stream[0][1]) % 3]
    if strategy == "random":
        return _best([_uniform(bits[0]) for bits in stream[1:]], picks, o["ties"])
    if strategy == "lead":
        return [(i, float(-i)) for i in range(picks)]
    better = (lambda a, b: a >= b) if o["ties"] == "later" else (lambda a, b: a > b)
    if strategy == "continuous":
        best, first = -1.0, 0
        for start in range(n - picks + 1):
            score = f1(words, set(range(start, start + picks)), o)
            if better(score, best):
                best, first = score, start
        return [(i, best) for i in range(first, first + picks)]
    if strategy == "seq":
        chosen: list[tuple[int, float]] = []
        while len(chosen) < picks:
            held = {i for i, _ in chosen}
            best, found = -1.0, -1
            for i in sorted(set(range(n)) - held):
                score = f1(words, held | {i}, o)
                if better(score, best):
                    best, found = score, i
            chosen.append((found, best))
        return chosen
    scores = [f1(words, {i}, o) for i in range(n)]
    if o["noise"]:
        share = float(np.float32(o["noise"])) if single else o["noise"]
        scores = [s * (1 + share * (share * _normal(bits))) for s, bits in zip(scores, stream[1:], strict=True)]
        scores = [float(np.float32(score)) for score in scores] if single else scores
    return _best(scores, picks, o["ties"])


def f1(words: list[list[str]], taken: set[int], o: dict[str, Any]) -> float:
    """ROUGE F1 of some sentences against the rest of their text."""
    inside = [word for i in sorted(taken) for word in words[i]]
    rest = [word for i in range(len(words)) if i not in taken for word in words[i]]
    if (o["ngram"], o["counts"], o["precision"]) == (1, "orig", "float64"):
        return _ROUGE_1.score(" ".join(rest), " ".join(inside))["rouge1"].fmeasure
    ours = sum((ngrams(words[i], o["ngram"]) for i in taken), Counter())
    theirs = ngrams([word for sentence in words for word in sentence], o["ngram"]) - ours
    worth = {"orig": lambda c: c, "uniq": lambda c: min(c, 1), "log": lambda c: round(math.log1p(c) * 2**40) / 2**40}
    value = worth[o["counts"]]
    shared = sum(min(value(ours[gram]), value(theirs[gram])) for gram in ours)
    least = 0.1 if o["counts"] == "log" else 1
    precision = shared / max(sum(map(value, ours.values())), least)
    recall = shared / max(sum(map(value, theirs.values())), least)
    if not shared:
        return 0.0
    if o["precision"] == "float32":
        p, r = np.float32(precision), np.float32(recall)
        return float(np.float32(2) * p * r / (p + r))
    return 2 * precision * recall / (precision + recall)


def _best(scores: list[float], picks: int, ties: str) -> list[tuple[int, float]]:
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], -i if ties == "later" else i))
    return [(i, scores[i]) for i in order[:picks]]


def _merge(queues: list[list], ties: str) -> list:
    """Always the best of the queues' heads."""
    queues = [list(queue) for queue in queues]
    order = []
    while any(queues):
        heads = [(queue[0][0], -i if ties == "earlier" else i) for i, queue in enumerate(queues) if queue]
        order.append(queues[abs(max(heads)[1])].pop(0))
    return order


def _stream(key: bytes, sequence: bytes, number: int, sentences: int) -> np.ndarray:
    own = id_keys(key, [sequence + number.to_bytes(4, "little")])[0]
    return np.random.Philox(key=own).random_raw(4 * (sentences + 1)).reshape(-1, 4)


def _uniform(bits: np.uint64) -> float:
    return (int(bits) >> 11) / 2**53


def _normal(bits: np.ndarray) -> float:
    return math.sqrt(-2 * math.log(1 - _uniform(bits[0]))) * math.cos(2 * math.pi * _uniform(bits[1]))


def _flags(bits: np.ndarray, chances: Sequence[float]) -> int:
    draw, sums = _uniform(bits[2]), np.cumsum(chances)
    return next(
        flags
        for flags, chance, end in zip(_FLAGS, chances, sums, strict=True)
        if chance and (draw < end or end > 1 - 1e-9)
    )
