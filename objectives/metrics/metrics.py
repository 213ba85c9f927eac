"""Metrics by name: ROUGE of summaries in a published flavour, measures of short answers, and shares of copied text."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from corpora.errors import FarspanError, nearest
from corpora.text.word_ngrams import ngram_hashes
from objectives.metrics.bootstrap import resample
from objectives.metrics.flavours import ANSWERS, FLAVOURS, SCROLLS, Flavour, list_metrics
from objectives.metrics.protocol import Metric, check_references, round_values
from objectives.rouge.prediction_scores import pair_scores

COPIED_NGRAM = 4


def compute_copied_shares(predictions: Sequence[str], source: str, n: int = COPIED_NGRAM) -> np.ndarray:
    """Compute the share of the word n-grams of each prediction that occur in the source.

    Words and hashes are those of ``corpora.text.word_ngrams``. A prediction of fewer than n words has one n-gram, all
    of its words.

    Returns ``(k,)`` float64 from 0 to 1, NaN for a prediction without words.
    """
    words = np.minimum(ngram_hashes(predictions, 1).lengths, n)
    shares = np.full(len(predictions), np.nan)
    for size in np.unique(words[words > 0]).tolist():
        known = np.unique(ngram_hashes([source], size).values)
        rows = np.flatnonzero(words == size).tolist()
        grams = ngram_hashes([predictions[row] for row in rows], size)
        copied = np.add.reduceat(np.isin(grams.values, known), grams.offsets[:-1])
        shares[rows] = copied / grams.lengths
    return shares


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


def normalize_answer(text: str) -> str:
    """Normalise as SQuAD: lower case, without punctuation and articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def token_f1(prediction: str, reference: str) -> float:
    """Compute F1 of the bags of normalised tokens, from 0 to 1; 0 if they share none, even if both are empty."""
    predicted, expected = normalize_answer(prediction).split(), normalize_answer(reference).split()
    shared = (Counter(predicted) & Counter(expected)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(expected)
    return 2 * precision * recall / (precision + recall)


def exact_match(prediction: str, reference: str) -> float:
    """Return 1 if both are equal after normalisation, else 0."""
    return float(normalize_answer(prediction) == normalize_answer(reference))


def compute_contained_share(prediction: str, references: Sequence[str]) -> float:
    """Share of the references that are substrings of the prediction, in lower case."""
    return float(np.mean([reference.lower() in prediction.lower() for reference in references]))


def lists_exactly(prediction: str, references: Sequence[str]) -> float:
    """Return 1 if the normalised parts of the prediction between commas are the references in any order, else 0."""
    parts = (part for text in references for part in text.split(","))  # a reference may itself have commas
    return float(Counter(map(normalize_answer, prediction.split(","))) == Counter(map(normalize_answer, parts)))


def _best(score: Callable[[str, str], float]) -> Callable[[str, Sequence[str]], float]:
    return lambda prediction, references: max(score(prediction, reference) for reference in references)


_SCORES: Mapping[str, Mapping[str, Callable[[str, Sequence[str]], float]]] = {
    "f1": {"f1": _best(token_f1)},
    "exact_match": {"exact_match": _best(exact_match)},
    "nearest_exact_match": {"nearest_exact_match": _best(exact_match)},
    "all": {"all": compute_contained_share, "all_exact": lists_exactly},
    "part": {"part": lambda *pair: float(compute_contained_share(*pair) > 0), "part_exact": _best(exact_match)},
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
            if options is None or not all(map(len, options)):
                raise FarspanError(f"metric {self.name} needs questions with options; use exact_match for others")
            answers = [nearest_option(*pair) for pair in zip(predictions, options, strict=True)]
        pairs = list(zip(answers, references, strict=True))
        return {
            key: 100 * np.array([0.0 if text is None else score(text, texts) for text, texts in pairs], np.float64)
            for key, score in _SCORES[self.measure].items()
        }

    def combine(self, means: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(means)

    def aggregate(self, scores: Mapping[str, np.ndarray]) -> dict[str, float]:
        return round_values({key: values.mean() for key, values in scores.items()})


@dataclass(frozen=True)
class RougeMetric:
    """``Metric`` of summaries: ``rouge/rouge1``, ``rouge/rouge2``, ``rouge/rougeL`` and so on.

    ``rouge/geometric_mean`` is (R1 R2 RL)^(1/3) of the aggregated values, with the flavour's own ROUGE-L; some
    flavours have further averages.

    Attributes:
        name: name for ``load_metric``.
        kind: name of the flavour.
    """

    name: str
    kind: str

    needs_options = False

    @property
    def _flavour(self) -> Flavour:
        return FLAVOURS[self.kind]

    @property
    def family(self) -> str:
        return f"rouge:{self.kind}"

    @property
    def flavour(self) -> str:
        return self._flavour.described(self.kind)

    @property
    def primary(self) -> str:
        return self._flavour.primary

    def scores(
        self,
        predictions: Sequence[str],
        references: Sequence[Sequence[str]],
        options: Sequence[Sequence[str]] | None = None,
    ) -> dict[str, np.ndarray]:
        check_references(self.name, references)
        flavour = self._flavour
        if "rougeLsum" in flavour.measures:
            predictions = list(map(flavour.lines, predictions))
            references = [list(map(flavour.lines, texts)) for texts in references]
        results = pair_scores(predictions, references, measures=flavour.measures, stem=flavour.stem)
        firsts = np.cumsum([0, *map(len, references)])[:-1]
        return {f"rouge/{name}": 100 * np.maximum.reduceat(pairs[:, 2], firsts) for name, pairs in results.items()}

    def combine(self, means: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        three = [means[f"rouge/{name}"] for name in ("rouge1", "rouge2", self._flavour.longest)]
        result = {**means, "rouge/geometric_mean": np.cbrt(three[0] * three[1] * three[2])}
        for key, measures in self._flavour.averages.items():
            result[key] = np.mean([means[f"rouge/{name}"] for name in measures], axis=0)
        return result

    def aggregate(self, scores: Mapping[str, np.ndarray]) -> dict[str, float]:
        if self._flavour.median:
            return round_values(self.combine({key: np.median(means) for key, means in resample(scores).items()}))
        return round_values(self.combine({key: values.mean() for key, values in scores.items()}))


def load_metric(name: str) -> Metric:
    """Load a metric by name.

    - ``scrolls:SUBSET``: the metric of SCROLLS for one of its data sets, e.g. ``scrolls:qasper``.
    - ``rouge:FLAVOUR``: ROUGE as in ``FLAVOURS``, e.g. ``rouge:t5``.
    - ``f1`` and ``exact_match``: as in SQuAD and SCROLLS.
    - ``quality_nearest``: exact match of the option that is nearest to the prediction.
    - ``all`` and ``part``: share of the references in the prediction, and whether any is, as in RULER.
    """
    head, _, tail = name.partition(":")
    if head == "scrolls" and tail in SCROLLS:
        measure = SCROLLS[tail]
        return RougeMetric(name, "scrolls") if measure == "rouge" else AnswerMetric(name, measure)
    if head == "rouge" and tail in FLAVOURS:
        return RougeMetric(name, tail)
    if name in ANSWERS:
        return AnswerMetric(name, ANSWERS[name])
    known = list_metrics()
    raise FarspanError(f"no metric is called {name!r}{nearest(name, known)}; metrics: {', '.join(known)}")
