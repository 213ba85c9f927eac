"""Names of all metrics; imports no metric, so that help is printed at once."""

from __future__ import annotations

from objectives.metrics.flavours import FLAVOURS

SCROLLS = {
    "gov_report": "rouge",
    "summ_screen_fd": "rouge",
    "qmsum": "rouge",
    "qasper": "f1",
    "narrative_qa": "f1",
    "quality": "exact_match",
    "contract_nli": "exact_match",
}
"""The measure of each data set of SCROLLS, in the order of its table."""
ANSWERS = {"f1": "f1", "exact_match": "exact_match", "quality_nearest": "nearest_exact_match"}
"""The measure of each other metric of answers."""


def known_metrics() -> list[str]:
    """Return the names that ``load_metric`` takes."""
    return [*(f"scrolls:{task}" for task in SCROLLS), *(f"rouge:{kind}" for kind in FLAVOURS), *ANSWERS]
