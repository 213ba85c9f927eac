"""ROUGE-1, 2, L and Lsum of predictions against references of 500 words each, on one core.

The peer is Google's ``rouge_score``, one pair at a time. Scores of both sides are checked to be equal first, with and
without stemmer. Texts are runs of real sentences, one on each line; a reference shares every second sentence with its
prediction.
"""

from __future__ import annotations

import one_thread  # isort: skip  (before numpy)

from report import HEADINGS, Comparison, arguments, comparison_rows, in_turn, machine, publish
from rouge_score.rouge_scorer import RougeScorer
from text import real_documents, sentences_of

from objectives.rouge.prediction_scores import MEASURES, pair_scores

GOAL = 100
WORDS = 500  # of each text, or the few more that end its last sentence
PAIRS, PEER_PAIRS = 400, 4


def texts(count: int) -> list[list[str]]:
    """The sentences of ``count`` texts, in reading order."""
    made: list[list[str]] = [[]]
    words = 0
    for document in real_documents():
        for sentence in sentences_of(document):
            made[-1].append(" ".join(sentence.split()))
            words += len(sentence.split())
            if words >= WORDS:
                made.append([])
                words = 0
                if len(made) > count:
                    return made[:count]
    raise SystemExit(f"the text is too short for {count} texts of {WORDS} words")


def pairs(count: int) -> tuple[list[str], list[list[str]]]:
    """Predictions, and one reference of each, half of which are the prediction's sentences."""
    made = texts(2 * count)
    predictions, references = made[:count], made[count:]
    for prediction, reference in zip(predictions, references, strict=True):
        for i in range(0, min(len(prediction), len(reference)), 2):
            reference[i] = prediction[i]
    return ["\n".join(lines) for lines in predictions], [["\n".join(lines)] for lines in references]


def peer(scorer: RougeScorer, predictions: list[str], references: list[list[str]]) -> list[list[list[float]]]:
    """Precision, recall and F1 by measure and pair."""
    found = [scorer.score(own[0], text) for text, own in zip(predictions, references, strict=True)]
    return [[list(score[name]) for score in found] for name in MEASURES]


def compare(stem: bool, predictions: list[str], references: list[list[str]], rounds: int) -> Comparison:
    scorer = RougeScorer(list(MEASURES), use_stemmer=stem)
    few = predictions[:PEER_PAIRS], references[:PEER_PAIRS]
    ours = [scores.tolist() for scores in pair_scores(*few, stem=stem).values()]
    assert ours == peer(scorer, *few)
    seconds = in_turn(
        {
            "ours": lambda: pair_scores(predictions, references, stem=stem),
            "peer": lambda: peer(scorer, *few),
        },
        rounds,
    )
    what = f"four measures, {'Porter stemmer' if stem else 'no stemmer'}"
    counts = {"ours": len(predictions), "peer": PEER_PAIRS}
    rates = {name: [counts[name] / second for second in values] for name, values in seconds.items()}
    return Comparison(what, "rouge_score", "pairs/s", rates["ours"], rates["peer"], GOAL)


def main() -> None:
    options = arguments(__doc__.partition("\n")[0], rounds=3).parse_args()
    environment = machine("numpy", "numba", "rouge_score", "nltk")
    one_thread.take_one_core()
    predictions, references = pairs(PAIRS)
    comparisons = [compare(stem, predictions, references, options.rounds) for stem in (False, True)]
    publish(
        f"ROUGE of pairs of {WORDS} words, one core",
        HEADINGS,
        comparison_rows(comparisons),
        environment,
        options.json,
        {row.ours: [list(row.our_rates), list(row.peer_rates)] for row in comparisons},
    )


if __name__ == "__main__":
    main()
