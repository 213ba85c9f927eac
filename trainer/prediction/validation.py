"""Validation by generation during training: texts for held-out pairs, and their metric.

Pairs are divided into chunks of a fixed number of rows, which the ranks take in turn, so the result does not depend on
the number of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corpora.errors import FarspanError
from corpora.schemas.pairs import PairSet
from objectives.metrics.metrics import load_metric, option_texts
from objectives.metrics.protocol import Metric
from objectives.tasks.protocol import split_groups
from trainer.model.seq2seq import Seq2Seq
from trainer.parallel.distributed import World
from trainer.prediction.predictor import Predictor

LENGTH = "generated_tokens"
"""Key of the mean number of generated tokens."""
_CHUNK = 32  # pairs per chunk
_SHOWN = 8  # pairs of each source whose texts are kept


@dataclass(frozen=True)
class HeldOutPairs:
    """The first pairs of a split."""

    name: str  # of their source in the metrics
    pairs: PairSet
    rows: np.ndarray  # (n,) int64, their rows in the artefact
    predictor: Predictor

    def check(self, metric: Metric) -> None:
        """Check that every pair has what the metric needs."""
        needed = {"references": "reference to compare a text with; validate on a split with references"}
        if metric.needs_options:
            needed["options"] = f"options to choose from, which metric {metric.name} needs; take exact_match"
        for column, lacking in needed.items():
            empty = [row for row, one in zip(self.rows, self.pairs.values(column, self.rows), strict=True) if not one]
            if empty:
                (name,) = self.pairs.values("pair_id", np.array(empty[:1]))
                raise FarspanError(f"{self.pairs.folder}: pair {name!r} has no {lacking}")


@dataclass(frozen=True)
class Validation:
    """Generation of texts for held-out pairs, and their scores.

    ``texts`` are those of the first pairs of each source in the last call: ``source``, ``pair``, ``text``,
    ``references`` and ``scores``.
    """

    parts: Sequence[HeldOutPairs]  # of each source
    metric: Metric
    texts: list[dict[str, Any]] = field(default_factory=list, compare=False)

    @classmethod
    def of(cls, parts: Sequence[HeldOutPairs], metric: str) -> Validation:
        """Check pairs and metric before any work."""
        loaded = load_metric(metric)
        for part in parts:
            part.check(loaded)
        return cls(parts, loaded)

    @property
    def names(self) -> list[str]:
        """Keys of the result."""
        keys = list(self.metric.aggregate(self.metric.scores(["a"], [["a"]], [["a"]])))
        by_part = [f"{key}/{part.name}" for part in self.parts for key in keys] if len(self.parts) > 1 else []
        return [*keys, *by_part, LENGTH]

    def __call__(self, model: Seq2Seq, world: World) -> dict[str, float]:
        """Generate and score; all ranks call this together, and get the same result.

        This is the metric over the pairs of all sources, with several sources also ``KEY/NAME`` of each, and the mean
        number of generated tokens.
        """
        chunks = [
            (part, rows)
            for part in self.parts
            for rows in split_groups(part.rows, part.predictor.group(part.pairs, part.rows), _CHUNK)
        ]
        own = [self._score(model, *chunk) for chunk in chunks[world.rank :: world.size]]
        gathered = world.gather(own)
        scored = [gathered[number % world.size][number // world.size] for number in range(len(chunks))]
        self.texts[:] = [text for one in scored for text in one["texts"]]
        record = self._aggregate(scored)
        length = np.mean(np.concatenate([one["lengths"] for one in scored]))
        if len(self.parts) > 1:
            for part in self.parts:
                theirs = [one for one, (owner, _) in zip(scored, chunks, strict=True) if owner is part]
                record |= {f"{key}/{part.name}": value for key, value in self._aggregate(theirs).items()}
        return {**record, LENGTH: float(length)}

    def _score(self, model: Seq2Seq, part: HeldOutPairs, rows: np.ndarray) -> dict[str, Any]:
        """Generate a chunk of texts and return their scores and lengths as JSON values."""
        predicted = part.predictor(model, part.pairs.take(rows))
        table = part.pairs.table(rows)
        options = None
        if self.metric.needs_options:
            columns = (table.column(name).to_pylist() for name in ("options", "targets", "references"))
            decode = part.predictor.tokenizer.decode
            options = [option_texts(own, targets, texts, decode) for own, targets, texts in zip(*columns, strict=True)]
        scores = self.metric.scores(predicted.texts, table.column("references").to_pylist(), options)
        count = _SHOWN if rows[0] == part.rows[0] else 0
        pairs, references = (table.column(name).slice(0, count).to_pylist() for name in ("pair_id", "references"))
        texts = [
            {
                "source": part.name,
                "pair": pair,
                "text": predicted.texts[place],
                "references": references[place],
                "scores": {key: float(values[place]) for key, values in scores.items()},
            }
            for place, pair in enumerate(pairs)
        ]
        return {
            "texts": texts,
            "scores": {key: values.tolist() for key, values in scores.items()},
            "lengths": [len(tokens) for tokens in predicted.tokens],
        }

    def _aggregate(self, scored: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        keys = scored[0]["scores"]
        scores = {key: np.concatenate([one["scores"][key] for one in scored]).astype(np.float64) for key in keys}
        return self.metric.aggregate(scores)
