"""Loading of metrics by name."""

from __future__ import annotations

from corpora.errors import FarspanError, nearest
from objectives.metrics.answers import AnswerMetric
from objectives.metrics.flavours import ANSWERS, FLAVOURS, SCROLLS, known_metrics
from objectives.metrics.protocol import Metric
from objectives.metrics.summaries import RougeMetric


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
    known = known_metrics()
    raise FarspanError(f"no metric is called {name!r}{nearest(name, known)}; metrics: {', '.join(known)}")
