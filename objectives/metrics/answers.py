"""Metrics of short answers: those of SQuAD and SCROLLS, of RULER, and exact match of the nearest option."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from corpora.errors import FarspanError
from objectives.metrics.protocol import check_references, round_values

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NORMALISED = "SQuAD's normalisation (lower case, without ASCII punctuation and a, an, the)"
_FLAVOURS = {
    "f1": f"token F1 after {_NORMALISED}; 0 without a common token; maximum over references; mean",
    "exact_match": f"exact match after {_NORMALISED}; maximum over references; mean",
    "nearest_exact_match": (
        "exact match of the option nearest to the prediction by token F1, the first of equal ones, none without a "
        f"common token; {_NORMALISED}; maximum over references; mean; not the exact match of SCROLLS"
    ),
    "all": (
        "share of the references that the prediction contains (string_match_all of RULER), in lower case; mean; beside "
        f"it all_exact: the prediction is the references in any order, with commas between them, after {_NORMALISED}"
    ),
    "part": (
        "100 if the prediction contains a reference (string_match_part of RULER), in lower case; mean; beside it "
        f"part_exact: exact match after {_NORMALISED}; maximum over references"
    ),
}


def normalized(text: str) -> str:
    """Normalise as SQuAD: lower case, without punctuation and articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def token_f1(prediction: str, reference: str) -> float:
    """Compute F1 of the bags of normalised tokens, from 0 to 1; 0 if they share none, even if both are empty."""
    predicted, expected = normalized(prediction).split(), normalized(reference).split()
    shared = (Counter(predicted) & Counter(expected)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(expected)
    return 2 * precision * recall / (precision + recall)


def exact_match(prediction: str, reference: str) -> float:
    """Return 1 if both are equal after normalisation, else 0."""
    return float(normalized(prediction) == normalized(reference))


def contained_share(prediction: str, references: Sequence[str]) -> float:
    """Share of the references that are substrings of the prediction, in lower case."""
    return float(np.mean([reference.lower() in prediction.lower() for reference in references]))


def lists_exactly(prediction: str, references: Sequence[str]) -> float:
    """Return 1 if the normalised parts of the prediction between commas are the references in any order, else 0."""
    parts = (part for text in references for part in text.split(","))  # a reference may itself have commas
    return float(Counter(map(normalized, prediction.split(","))) == Counter(map(normalized, parts)))


def _best(score: Callable[[str, str], float]) -> Callable[[str, Sequence[str]], float]:
    return lambda prediction, references: max(score(prediction, reference) for reference in references)


_SCORES: Mapping[str, Mapping[str, Callable[[str, Sequence[str]], float]]] = {
    "f1": {"f1": _best(token_f1)},
    "exact_match": {"exact_match": _best(exact_match)},
    "nearest_exact_match": {"nearest_exact_match": _best(exact_match)},
    "all": {"all": contained_share, "all_exact": lists_exactly},
    "part": {"part": lambda *pair: float(contained_share(*pair) > 0), "part_exact": _best(exact_match)},
}
"""The keys of each measure, and the score of a prediction by its references, from 0 to 1."""


def nearest_option(prediction: str, options: Sequence[str]) -> str | None:
    """Return the option with the highest token F1, the first of equal ones; None if no option shares a token."""
    scores = [token_f1(prediction, option) for option in options]
    return options[int(np.argmax(scores))] if any(scores) else None


def option_texts(
    options: Sequence[Sequence[int]] | None,
    targets: Sequence[Sequence[int]],
    references: Sequence[str],
    decode: Callable[[np.ndarray], str],
) -> list[str]:
    """Return the texts of a question's options; an option with the tokens of a target has the text of its reference.

    So the right option equals the reference even if the tokenizer does not decode every text exactly.

    ``options``, ``targets``: tokens of each; no options, or None, for a free answer.
    """
    known = {tuple(target): text for target, text in zip(targets, references, strict=False)}
    return [known.get(tuple(tokens)) or decode(np.asarray(tokens, np.int64)) for tokens in options or ()]


@dataclass(frozen=True)
class AnswerMetric:
    """``Metric`` of short answers.

    Attributes:
        name: name for ``load_metric``.
        measure: ``f1``, ``exact_match``, ``nearest_exact_match``, ``all`` or ``part``.
    """

    name: str
    measure: str

    family = "answers"

    @property
    def flavour(self) -> str:
        return _FLAVOURS[self.measure]

    @property
    def primary(self) -> str:
        return self.measure

    @property
    def needs_options(self) -> bool:
        return self.measure == "nearest_exact_match"

    def scores(
        self,
        predictions: Sequence[str],
        references: Sequence[Sequence[str]],
        options: Sequence[Sequence[str]] | None = None,
    ) -> dict[str, np.ndarray]:
        check_references(self.name, references)
        answers: Sequence[str | None] = predictions
        if self.needs_options:
            answers = [nearest_option(*pair) for pair in zip(predictions, self._check_options(options), strict=True)]
        pairs = list(zip(answers, references, strict=True))
        return {
            key: 100 * np.array([0.0 if text is None else score(text, texts) for text, texts in pairs], np.float64)
            for key, score in _SCORES[self.measure].items()
        }

    def _check_options(self, options: Sequence[Sequence[str]] | None) -> Sequence[Sequence[str]]:
        if options is None or not all(map(len, options)):
            raise FarspanError(f"metric {self.name} needs questions with options; use exact_match for others")
        return options

    def combine(self, means: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(means)

    def aggregate(self, scores: Mapping[str, np.ndarray]) -> dict[str, float]:
        return round_values({key: values.mean() for key, values in scores.items()})
