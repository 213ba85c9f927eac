"""Flavours of ROUGE, one for each way of computing published numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from corpora.errors import FarspanError

if TYPE_CHECKING:
    from corpora.text.sentences import SentenceSplitter


def _t5_lines(text: str) -> str:
    return text.replace(" . ", " .\n")


def _files2rouge_lines(text: str) -> str:
    return text.replace(" .", " .\n")


def _punkt_lines(text: str) -> str:
    splitter = punkt()
    assert splitter is not None  # without it, rougeLsum is left out
    starts = [*splitter.boundaries(text).tolist(), len(text)]
    return "\n".join(text[begin:end].strip() for begin, end in pairwise(starts))


@dataclass(frozen=True, kw_only=True)
class Flavour:
    """A way of computing ROUGE.

    Attributes:
        numbers: published numbers that are comparable.
        tool: the published tool.
        stem: True if words are stemmed.
        longest: ``rougeL`` or ``rougeLsum``, the measure published as ROUGE-L.
        sentences: description of the sentences of ``rougeLsum``.
        lines: puts each sentence of a text on a line.
        needs_punkt: True if ``lines`` needs NLTK's trained Punkt; without it, ``rougeLsum`` is left out.
        median: True to aggregate by the median of 1,000 bootstrap means, not by the mean.
        averages: further keys, each the arithmetic mean of some measures, by which systems chose checkpoints.
        primary: the key by which systems and checkpoints are compared.
        approximate: reason why numbers only approximate those of the published tool; empty if they are equal.
    """

    numbers: str
    tool: str = "rouge_score"
    stem: bool
    longest: str
    sentences: str = "lines of the text"
    lines: Callable[[str], str] = str
    needs_punkt: bool = False
    median: bool = False
    averages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    primary: str = "rouge/geometric_mean"
    approximate: str = ""

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures of ``objectives.rouge`` to compute."""
        if self.longest == "rougeLsum":
            return ("rouge1", "rouge2", "rougeLsum")
        splits = not self.needs_punkt or punkt() is not None
        return ("rouge1", "rouge2", "rougeL", *(["rougeLsum"] if splits else []))

    def described(self, name: str) -> str:
        """Describe the whole flavour in one line."""
        return "; ".join(
            [
                f"ROUGE, flavour {name} ({self.numbers})",
                f"{self.tool}, {'Porter stemmer' if self.stem else 'no stemmer'}",
                f"ROUGE-L is {self.longest}",
                f"sentences of rougeLsum: {self.sentences}"
                if "rougeLsum" in self.measures
                else "rougeLsum left out, because NLTK's punkt_tab data is not installed; no other number needs it",
                "F1, maximum over references for each measure",
                "median of 1,000 bootstrap means, seeded here, not where published" if self.median else "mean",
                "geometric mean of the ROUGE-1, 2 and L so aggregated",
                *([f"APPROXIMATE: {self.approximate}"] if self.approximate else []),
            ]
        )


_BART_LS = {"rouge/average_of_1_and_2": ("rouge1", "rouge2")}  # rouge_avg in fairseq/tasks/summarization.py

FLAVOURS = {
    "scrolls": Flavour(
        numbers="SCROLLS, ZeroSCROLLS, the prints of BART-LS's scripts",
        stem=False,
        longest="rougeL",
        sentences="NLTK's Punkt for English",
        lines=_punkt_lines,
        needs_punkt=True,
        averages=_BART_LS,
    ),
    "t5": Flavour(
        numbers="LongT5, T5",
        tool="rouge_score in t5.evaluation.metrics",
        stem=False,
        longest="rougeLsum",
        sentences="split after a full stop between two spaces",
        lines=_t5_lines,
        median=True,
    ),
    "pegasus_x": Flavour(numbers="PEGASUS-X, ablations and section 4", stem=True, longest="rougeL"),
    "primera": Flavour(
        numbers="PRIMERA",
        stem=True,
        longest="rougeL",
        averages={"rouge/average": ("rouge1", "rouge2", "rougeL")},
        primary="rouge/average",
    ),
    "led": Flavour(numbers="LED's script, but for its mean of batch means", stem=False, longest="rougeLsum"),
    "files2rouge-like": Flavour(
        numbers="the BART-LS paper",
        tool="rouge_score in place of files2rouge (ROUGE-1.5.5)",
        stem=True,
        longest="rougeLsum",
        sentences="split after a space and a full stop",
        lines=_files2rouge_lines,
        averages=_BART_LS,
        approximate="ROUGE-1.5.5 has another stemmer, and texts there were tokenised by CoreNLP first",
    ),
}


@cache
def punkt() -> SentenceSplitter | None:
    """Load NLTK's trained Punkt for English; None if its data is not installed."""
    from corpora.text.sentences import load_splitter  # slow to import, and names of flavours do not need it

    try:
        return load_splitter("nltk:english")
    except FarspanError:
        return None


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
ANSWERS = {
    "f1": "f1",
    "exact_match": "exact_match",
    "quality_nearest": "nearest_exact_match",
    "all": "all",
    "part": "part",
}
"""The measure of each other metric of answers."""


def list_metrics() -> list[str]:
    """Return the names that ``load_metric`` takes."""
    return [*(f"scrolls:{task}" for task in SCROLLS), *(f"rouge:{kind}" for kind in FLAVOURS), *ANSWERS]
