"""A corpus whose masks are chosen by a generator that is trained together with the model.

Every row has two views. The candidates view hides all candidates of objective ``model_based`` and is scored by the
generator. The rows view keeps the hardest candidates hidden and is what the encoder-decoder learns from. Given the
generator's weights, the rows view is what a mask set made with it as ``--scorer`` would hold.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.storage.shard_cache import ShardCache
from objectives.api.examples import IGNORED, Examples
from objectives.api.protocol import CorpusFacts, load_objective, mask_key
from objectives.api.special_tokens import SpecialTokens
from objectives.model_based import ModelBased
from trainer.data.config import DataConfig
from trainer.data.masked_corpus import Drawing, MaskedCorpus, rows_of_positions


class GeneratorMaskedCorpus(MaskedCorpus):
    """The rows view: a source for the encoder-decoder, given the generator's losses.

    Before there are losses, ``examples`` hides the first candidates, because any of them may be chosen.
    """

    def __init__(
        self,
        corpus: Corpus,
        objective: ModelBased,
        special: SpecialTokens,
        drawing: Drawing,
        generator_special: SpecialTokens,
        segment_ids: bool,
        chosen: np.ndarray | None = None,
    ) -> None:
        super().__init__(corpus, objective, special, drawing, segment_ids, chosen)
        self._model_based, self._drawing, self._generator_special = objective, drawing, generator_special

    def candidates(self, indices: np.ndarray, epochs: np.ndarray | None = None) -> Examples:
        """The candidates view of the rows at ``(n,)`` int64 ``indices``, with labels in place."""
        batch = self.corpus.take(self.in_corpus(indices))
        masks = self._drawing.masks(self._model_based.candidates, batch, epochs)
        # Collation needs segment ids; the generator ignores them, as every scorer does.
        return self._model_based.show(batch, masks, self._generator_special, **self._rendering)

    def choose(self, indices: np.ndarray, losses: np.ndarray | None, epochs: np.ndarray | None = None) -> Examples:
        """The rows view with the hardest candidates hidden, and a target.

        ``losses`` are the generator's at each position of ``candidates(indices, epochs)``, ``(n, C)`` float, perhaps
        padded to a greater C; None for equal losses.
        """
        batch = self.corpus.take(self.in_corpus(indices))
        masks = self._drawing.masks(self._model_based.candidates, batch, epochs)
        labels = self._model_based.show(batch, masks, self._generator_special).labels
        assert labels is not None
        if losses is None:
            losses = np.zeros(labels.shape)
        hidden = self._model_based.choose(batch, masks, losses[:, : labels.shape[1]][labels != IGNORED])
        return self._model_based.render(batch, hidden, self.special, **self._rendering)

    def examples(self, indices: np.ndarray, epochs: np.ndarray | None = None) -> Examples:
        """The rows view without losses."""
        return self.choose(indices, None, epochs)

    def with_special(self, special: SpecialTokens) -> Self:
        """The same rows with the encoder-decoder's ids of another table."""
        self._require_tokens(special)
        return type(self)(*self._arguments(special))

    def view_candidates(self) -> Candidates:
        """The candidates view as a source."""
        return Candidates(*self._arguments(self.special))

    def _arguments(self, special: SpecialTokens) -> tuple[Any, ...]:
        tools = self.corpus, self._model_based, special, self._drawing, self._generator_special
        return *tools, bool(self._rendering), self.chosen


class Candidates(GeneratorMaskedCorpus):
    """The candidates view as a source; ``choose`` gives the rows for the encoder-decoder."""

    def examples(self, indices: np.ndarray, epochs: np.ndarray | None = None) -> Examples:
        return self.candidates(indices, epochs)


def open_generator_masked(
    data: DataConfig,
    special: SpecialTokens,
    positions: int | None,
    *,
    verify: bool = False,
    cache: ShardCache | None = None,
) -> GeneratorMaskedCorpus:
    """Open the corpus that a data section names for joint training."""
    config, *others = data.sources
    objective = config.objective
    if others or config.masks is not None or objective is None or objective.name != ModelBased.name or objective.scorer:
        raise FarspanError(
            f"a generator is trained on one corpus with data.objective {ModelBased.name}, without masks, mixture or "
            "objective.scorer; change the data section, or remove the generator's"
        )
    corpus = Corpus(config.corpus, verify=verify, cache=cache)
    corpus.check_files()
    loaded = load_objective(objective.name, objective.preset, objective.options)
    assert isinstance(loaded, ModelBased)
    own_special = loaded.validate(CorpusFacts.of(corpus.manifest))
    if positions is not None and data.source_length > positions:
        raise FarspanError(
            f"data.source_length is {data.source_length}, but the generator has {positions} positions, and joint "
            "training shows it whole rows; give it more positions, with attention in blocks if necessary"
        )
    drawing = Drawing(mask_key(objective.seed, loaded), objective.redraw)
    chosen = None if config.row_positions is None else rows_of_positions(corpus, *config.row_positions)
    return GeneratorMaskedCorpus(corpus, loaded, own_special, drawing, special, not data.across_documents, chosen)
