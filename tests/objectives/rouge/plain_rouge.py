"""ROUGE of sentences, slowly and plainly: strings to ``rouge_score``, counters as PEGASUS subtracts and adds them."""

import math
from collections import Counter
from typing import Any

import numpy as np
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer

TOKENIZER = DefaultTokenizer(use_stemmer=False)
STEMMER = DefaultTokenizer(use_stemmer=True)


def against_the_rest(sentences: list[str], stem: bool = False) -> list[float]:
    """ROUGE-1 of each sentence against the others joined by spaces, by ``rouge_score`` itself."""
    scorer = RougeScorer(["rouge1"], use_stemmer=stem)
    rest = [" ".join(sentences[:i] + sentences[i + 1 :]) for i in range(len(sentences))]
    return [scorer.score(b, a)["rouge1"].fmeasure for a, b in zip(sentences, rest, strict=True)]


def of_clusters(documents: list[list[str]], stem: bool) -> list[float]:
    """PRIMERA's: every sentence against each other document as one string."""
    metrics = ["rouge1", "rouge2", "rougeL"]
    scorer = RougeScorer(metrics, use_stemmer=stem)
    scores = []
    for i, document in enumerate(documents):
        for sentence in document:
            others = [scorer.score(" ".join(d), sentence) for j, d in enumerate(documents) if j != i]
            scores.append(sum(sum(score[metric].fmeasure for metric in metrics) / 3 for score in others))
    return scores


def ngrams(words: list, n: int) -> Counter:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def f1(left: Counter, taken: Counter, counts: str, single: bool) -> Any:
    """PEGASUS's score of counters, in the order of operations of its code."""
    worth = {"orig": lambda c: c, "uniq": lambda c: min(c, 1), "log": lambda c: math.log(1 + c)}[counts]
    shared = math.fsum(min(worth(left[gram]), worth(count)) for gram, count in taken.items())
    least = 0.1 if counts == "log" else 1.0
    recall = shared / max(least, math.fsum(map(worth, left.values())))
    precision = shared / max(least, math.fsum(map(worth, taken.values())))
    if single:
        r, p = np.float32(recall), np.float32(precision)
        return (np.float32(2) * p * r) / (p + r) if min(p, r) > 0 else 0.0
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


def minus(whole: Counter, part: Counter) -> Counter:
    return Counter({gram: count - part[gram] for gram, count in whole.items()})


class Plain:
    """One text of sentences of words; n-grams of several sentences are those within each."""

    def __init__(self, sentences: list[list], n: int, counts: str, single: bool) -> None:
        self.own = [ngrams(words, n) for words in sentences]
        self.whole = ngrams([word for words in sentences for word in words], n)
        self.setting = (counts, single)

    def windows(self, size: int) -> list[float]:
        parts = [sum(self.own[i : i + size], Counter()) for i in range(len(self.own) - size + 1)]
        return [f1(minus(self.whole, part), part, *self.setting) for part in parts]

    def scores_after(self, chosen: list[int]) -> dict[int, float]:
        """Of each sentence that is not chosen, together with those that are."""
        taken, left = Counter(), self.whole
        for i in chosen:
            taken, left = taken + self.own[i], minus(left, self.own[i])
        rest = [i for i in range(len(self.own)) if i not in chosen]
        return {i: f1(minus(left, self.own[i]), taken + self.own[i], *self.setting) for i in rest}

    def greedy(self, picks: int, later: bool) -> tuple[list[int], list[float]]:
        order, scores = [], []
        for _ in range(picks):
            found = self.scores_after(order)
            best = max(found.values())
            equal = [i for i in found if found[i] == best]
            order.append(equal[-1] if later else equal[0])
            scores.append(best)
        return order, scores
