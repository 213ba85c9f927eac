"""Joint training: a masked language model is trained beside the model, and chooses as it now is what the model learns.

Every step has two views of the same rows. The loader gives the first, with all candidates of objective ``model_based``
hidden from the generator. Its losses say which of them stay hidden; the rows rendered with these are the second view,
for the encoder-decoder. Given the weights, that is what a mask set made with the generator as ``--scorer`` would hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.distributed.fsdp import register_fsdp_forward_method

from corpora.errors import FarspanError
from corpora.keyed import make_key
from corpora.schemas.corpus import Corpus
from objectives.api.examples import IGNORED, Examples
from objectives.api.protocol import CorpusFacts, load_objective, mask_key
from objectives.api.special_tokens import DOCUMENT_SEPARATOR, MASK, SpecialTokens
from objectives.model_based import ModelBased
from trainer.checkpoint.trained_model import find_trained
from trainer.data.collate import collate
from trainer.data.config import Batch, Batches, DataConfig
from trainer.data.curriculum import Stage
from trainer.data.loader import Loader
from trainer.data.masked_corpus import Drawing, MaskedCorpus
from trainer.data.mixture import Mixture
from trainer.model.build import build_model
from trainer.model.config import ModelConfig
from trainer.model.flops import batch_flops
from trainer.model.joint import JointModel
from trainer.model.masked_lm import MaskedLM
from trainer.parallel.distributed import World
from trainer.run.sources import shared
from trainer.scorer.config import OBJECTIVE, GeneratorConfig
from trainer.scorer.models import find_model


class Candidates:
    """A source whose examples are the generator's view; ``chosen`` is the other one.

    Attributes:
        rows: what the encoder-decoder sees of the corpus.
        fingerprint, special, tokenizer_fingerprint, tokenizer_size: as of the rows that the encoder-decoder sees.
    """

    def __init__(
        self,
        corpus: Corpus,
        objective: ModelBased,
        drawing: Drawing,
        special: SpecialTokens,
        shown: SpecialTokens,
        segment_ids: bool,
    ) -> None:
        """
        Args:
            corpus, objective: whose candidates.
            drawing: of the candidates.
            special, shown: the special tokens of the encoder-decoder, and of the generator.
            segment_ids: number the document of each position.
        """
        self._corpus, self._objective, self._drawing, self._segment_ids = corpus, objective, drawing, segment_ids
        self.special, self._shown = special, shown
        self.rows = MaskedCorpus(corpus, objective, special, drawing, segment_ids)
        self.fingerprint = self.rows.fingerprint
        self.tokenizer_fingerprint, self.tokenizer_size = self.rows.tokenizer_fingerprint, self.rows.tokenizer_size

    def __len__(self) -> int:
        return len(self._corpus)

    def examples(self, indices: np.ndarray, epochs: np.ndarray | None = None) -> Examples:
        """The rows at ``(n,)`` int64 ``indices`` with every candidate of their epochs hidden, and labels in place."""
        batch = self._corpus.take(indices)
        candidates = self._drawing.masks(self._objective.candidates, batch, epochs)
        # Collation asks for the segments; the generator takes no notice of them, as no scorer does.
        return self._objective.show(batch, candidates, self._shown, segment_ids=self._segment_ids)

    def chosen(self, indices: np.ndarray, losses: np.ndarray, epochs: np.ndarray | None = None) -> Examples:
        """The same rows with the hardest candidates hidden, and a target.

        Args:
            losses: ``(n, C)`` float, of each position of ``examples(indices, epochs)``, or of wider ones.
        """
        batch = self._corpus.take(indices)
        candidates = self._drawing.masks(self._objective.candidates, batch, epochs)
        labels = self._objective.show(batch, candidates, self._shown).labels
        assert labels is not None
        hidden = self._objective.choose(batch, candidates, losses[:, : labels.shape[1]][labels != IGNORED])
        return self._objective.render(batch, hidden, self.special, segment_ids=self._segment_ids)

    def with_special(self, special: SpecialTokens) -> Candidates:
        """The same candidates, chosen ones rendered with the ids of another table."""
        special = self.rows.with_special(special).special  # which refuses one that lacks a token
        return Candidates(self._corpus, self._objective, self._drawing, special, self._shown, self._segment_ids)

    def origin(self, index: int) -> str:
        """The shard and the row in it of sequence ``index``."""
        return self.rows.origin(index)


@dataclass(frozen=True)
class Generator:
    """What joint training begins with.

    Attributes:
        model: an encoder alone, in float32 on the CPU.
        special: the special tokens it knows.
        positions: the most it sees at once; None for any number.
        identity: of its first weights; None where they are drawn.
    """

    model: MaskedLM
    special: SpecialTokens
    positions: int | None
    identity: str | None


def open_generator(config: GeneratorConfig, corpus: Corpus, seed: int) -> Generator:
    """Load the generator, or draw its weights for the ids of ``corpus``.

    Raises:
        FarspanError: no such run, or the model of another tokenizer.
    """
    entry = corpus.manifest.tokenizer
    if config.initial is None:
        assert config.model is not None
        names = [DOCUMENT_SEPARATOR, MASK] if corpus.manifest.config["room_per_document"] else [MASK]
        special = SpecialTokens.append(entry["vocab_size"], entry["owned_tokens"], names)
        key = make_key(seed, "generator")  # or it would begin with vectors of the model that it is trained beside
        drawn = build_model(config.model, special.vocab_size, int.from_bytes(key[:4], "little"))
        assert isinstance(drawn, MaskedLM)
        return Generator(drawn, special, config.model.encoder.positions.limit, None)
    try:
        found = find_model(config.initial)
    except FarspanError as error:
        raise FarspanError(f"generator.initial: {error}") from error
    if found.tokenizer_fingerprint != entry["fingerprint"]:
        raise FarspanError(
            f"generator.initial {config.initial} has the tokenizer with fingerprint {found.tokenizer_fingerprint}, "
            f"{corpus.folder} {entry['fingerprint']}; give a generator trained on a corpus with this tokenizer"
        )
    model = found.load()
    if not isinstance(model, MaskedLM):
        raise FarspanError(
            f"generator.initial {config.initial} is no run of `farspan train`; give one with an encoder alone, or set "
            "generator.mode to frozen"
        )
    return Generator(model, found.special, found.positions, found.fingerprint)


def generator_sizes(config: GeneratorConfig) -> ModelConfig:
    """Of the generator, without its weights.

    Raises:
        FarspanError: no such run.
    """
    if config.model is not None:
        return config.model
    assert config.initial is not None
    trained = find_trained(Path(config.initial))
    return (trained.generator or trained).config


def open_joint(
    stages: Sequence[Stage], config: GeneratorConfig, seed: int, *, verify: bool = False
) -> tuple[list[Mixture], Generator]:
    """What each stage is trained on, all with the special tokens of all, and the generator; as ``open_stages``.

    Raises:
        FarspanError: as ``open_generator`` and ``open_candidates``.
    """
    generator = open_generator(config, Corpus(stages[0].data.corpus), seed)
    mixtures = shared(stages, lambda stage: Mixture.of(open_candidates(stage.data, generator, verify=verify)))
    return mixtures, generator


def open_candidates(data: DataConfig, generator: Generator, *, verify: bool = False) -> Candidates:
    """Open what a data section of joint training names.

    Args:
        generator: that will see the candidates.
        verify: as in ``open_source``.

    Raises:
        FarspanError: a mixture, masks that are chosen already, another objective, one that names a scorer, rows longer
            than the generator has positions.
    """
    config, *others = data.sources
    objective = config.objective
    if others or config.masks is not None or objective is None or objective.name != OBJECTIVE or objective.scorer:
        raise FarspanError(
            f"generator.mode is 'joint', which trains on one corpus with data.objective {OBJECTIVE}, without masks, "
            "mixture or objective.scorer; change the data section, or set generator.mode to frozen"
        )
    corpus = Corpus(config.corpus, verify=verify)
    corpus.check_files()
    made = load_objective(objective.name, objective.preset, objective.options)
    assert isinstance(made, ModelBased)
    special = made.validate(CorpusFacts.of(corpus.manifest))
    if generator.positions is not None and data.source_length > generator.positions:
        raise FarspanError(
            f"data.source_length is {data.source_length}, but the generator has {generator.positions} positions, and "
            "joint training shows it whole rows; give it more positions, with attention in blocks if need be"
        )
    drawing = Drawing(mask_key(objective.seed, made), objective.redraw)
    return Candidates(corpus, made, drawing, special, generator.special, not data.across_documents)


@dataclass(frozen=True)
class JointBatch(Batch):
    """Both views of the same samples; that of the encoder-decoder is the ``Batch``.

    Attributes:
        candidate_ids, candidate_padding_mask, candidate_labels: ``(B, C)``, as ``MaskedLM`` takes them.
        target_counts: ``(2,)`` int64, target and candidate tokens of the whole step, over all ranks.
    """

    candidate_ids: Tensor | None = None
    candidate_padding_mask: Tensor | None = None
    candidate_labels: Tensor | None = None
    target_counts: Tensor | None = None

    @classmethod
    def of(cls, batch: Batch, shown: Batch, target_counts: Tensor) -> JointBatch:
        """Both views, ``shown`` that of the generator."""
        return cls(
            **{field.name: getattr(batch, field.name) for field in fields(Batch)},
            candidate_ids=shown.source_ids,
            candidate_padding_mask=shown.source_padding_mask,
            candidate_labels=shown.labels,
            target_counts=target_counts,
        )

    @property
    def inputs(self) -> dict[str, Tensor | None]:
        """Keyword arguments of ``JointModel``."""
        names = ("candidate_ids", "candidate_padding_mask", "candidate_labels", "target_counts")
        return {**super().inputs, **{name: getattr(self, name) for name in names}}


def asking_generator(batch: Batch) -> JointBatch:
    """``batch`` with as many candidates beside it, every third position, as a step of joint training may have."""
    ids = torch.zeros_like(batch.source_ids)  # in any vocabulary
    labels = ids.masked_fill(torch.arange(ids.shape[1]) % 3 > 0, IGNORED)
    shown = replace(batch, source_ids=ids, labels=labels)
    return JointBatch.of(batch, shown, torch.tensor([batch.target_tokens, int((labels != IGNORED).sum())]))


def generator_flops(batches: Sequence[Batch], generator: MaskedLM) -> int:
    """Of the generator's part in a step, counted as in ``metrics.Counts``: a forward pass to choose, and training.

    The two differ by dropout, so neither can stand for the other.
    """
    rows_of_table, total = generator.tokens.num_embeddings, 0
    for batch in batches:
        assert isinstance(batch, JointBatch)
        assert batch.candidate_ids is not None
        assert batch.candidate_labels is not None
        rows, width = batch.candidate_ids.shape
        asked = int((batch.candidate_labels != IGNORED).sum())
        total += (1 + 3) * batch_flops(generator.config, rows_of_table, rows, width, asked)
    return total


class JointBatches:
    """Between the loader and the loop: has the candidates of each step scored, and makes the second view.

    All ranks ask for a step, or none does: they score it together.

    Attributes:
        generator_loss: mean cross-entropy a candidate token in the last step, of all ranks, without dropout.
    """

    def __init__(
        self, loader: Loader, batches: Batches, model: JointModel, world: World, precision: Literal["bf16", "fp32"]
    ) -> None:
        """
        Args:
            loader: over ``Candidates``.
            batches: the same batches, perhaps made ahead.
            model: as it is trained; under FSDP the sharded one.
            world: that train together.
            precision: of the run.
        """
        self._loader, self._batches, self._model, self._world = loader, batches, model, world
        self._precision = precision
        self.generator_loss = 0.0

    def step(self, step: int) -> list[Batch]:
        """This rank's micro-batches of ``step``, counted from 0.

        Raises:
            FarspanError: data that is damaged or does not fit the widths.
        """
        stage, mixture = self._loader.at(step)
        shown = self._batches.step(step)
        (source,) = (part.source for part in mixture.parts)
        assert isinstance(source, Candidates)
        chosen = []
        scores = self._scores(shown)
        for batch, losses in zip(shown, scores, strict=True):
            rows, epochs = mixture.sequences(batch.samples, self._loader.seed)
            examples = source.chosen(rows, losses, epochs)
            made = collate(examples, batch.samples, stage.data, mixture.special)
            chosen.append(made if batch.source_tokens else made.asking_nothing())
        targets, candidates, total = self._world.sum(
            sum(batch.target_tokens for batch in chosen),
            sum(batch.target_tokens for batch in shown),
            sum(float(losses.sum(dtype=np.float64)) for losses in scores),
        )
        self.generator_loss = total / max(candidates, 1)
        counts = torch.tensor([targets, candidates], dtype=torch.int64)
        return [JointBatch.of(made, batch, counts) for made, batch in zip(chosen, shown, strict=True)]

    @cached_property
    def _score(self) -> Callable[..., Tensor]:
        register_fsdp_forward_method(self._model, "score")  # which then begins by gathering what is sharded
        return self._model.score

    def _scores(self, shown: Sequence[Batch]) -> list[np.ndarray]:
        """``(B, C)`` float32 of each batch."""
        device = self._world.device
        self._model.eval()
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=self._precision == "bf16"):
            scores = [
                self._score(batch.source_ids, batch.source_padding_mask, batch.labels)
                for batch in (batch.to(device) for batch in shown)
            ]
        # A loss that is not finite chooses nothing here; it comes back in training, where its update is left out.
        return [np.nan_to_num(losses.cpu().numpy(), nan=0.0, posinf=0.0, neginf=0.0) for losses in scores]
