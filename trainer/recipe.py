"""A recipe: the complete configuration of a training run, read from one TOML file."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from corpora.errors import FarspanError
from corpora.settings import override, parse
from trainer.checkpoint.run_files import RECIPE, DamagedError, read_sealed
from trainer.checkpoint.selection import CheckpointConfig
from trainer.data.config import SOURCE_KEYS, DataConfig
from trainer.data.curriculum import Stage, StageConfig
from trainer.data.loader import LoadingConfig
from trainer.metrics import MetricsConfig
from trainer.model.config import GeneratorConfig, ModelConfig
from trainer.model.loss import LossConfig
from trainer.optim.optimizer import OptimizerConfig
from trainer.optim.schedule import ScheduleConfig
from trainer.parallel.wrapping import ParallelConfig
from trainer.recipe_files import merge, read_tables, without_other_length
from trainer.run_config import EvaluationConfig, RunConfig


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All sections of a recipe."""

    model: ModelConfig
    data: DataConfig
    run: RunConfig
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    evaluation: EvaluationConfig | None = None
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    loading: LoadingConfig = field(default_factory=LoadingConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    stages: tuple[StageConfig, ...] = ()
    generator: GeneratorConfig | None = None

    def __post_init__(self) -> None:
        self._replace_tokens()
        self._check_positions()
        if self.loss.r3f and not self.model.decoder:
            raise FarspanError(
                "loss.r3f compares predictions of a decoder, but the model has none; add a model.decoder section, or "
                "set loss.r3f=none"
            )
        steps = self.run.steps
        if steps is not None and self.schedule.warmup_steps > steps:
            raise FarspanError(
                f"schedule.warmup_steps is {self.schedule.warmup_steps}, but run.steps is {steps}; warm up for fewer "
                "steps"
            )
        staged = sum(stage.steps or 0 for stage in self.stages)
        if self.stages and steps is None:
            raise FarspanError(f"run.epochs conflicts with stages, which have steps; set run.steps to {staged} instead")
        if self.stages and staged != steps:
            raise FarspanError(f"the stages have {staged} steps together, but run.steps is {steps}; make them equal")
        if self.data.packing and self.loss.r3f and self.loss.r3f.per == "sentence":
            raise FarspanError(
                "data.packing is true, but loss.r3f.per is 'sentence' and a row has several; set loss.r3f.per=token"
            )
        self._check_selection()
        curriculum = self.curriculum  # checks the attention of each stage
        if self.generator:
            pairs = any(source.pairs for stage in curriculum for source in stage.data.sources)
            self.generator.check_use(self.model, pairs)
        for stage in curriculum[len(self.stages) or 1 :]:
            if stage.learning_rate_at(stage.first_step) == 0:
                raise FarspanError(
                    f"run.extend: the learning rate is 0 from step {stage.first_step + 1} on, because schedule.steps "
                    f"is {stage.schedule.steps} and schedule.end is 0; begin a new run with this one as its "
                    "run.initial_model"
                )

    def _replace_tokens(self) -> None:
        """Replace budgets of tokens by numbers of updates."""
        stages, spent = [], 0
        for stage in self.stages:
            data = stage.data or self.data
            positions = (stage.batch_size or self.run.batch_size) * data.source_length
            spent += stage.tokens or (stage.steps or 0) * positions
            steps = stage.steps or math.ceil((stage.tokens or 0) / positions)
            stages.append(replace(stage, steps=steps, tokens=None))
        tokens = self.run.tokens
        if tokens is not None and stages and spent != tokens:
            raise FarspanError(f"the stages have {spent} tokens together, but run.tokens is {tokens}; make them equal")
        if tokens is not None:
            steps = math.ceil(tokens / (self.run.batch_size * self.data.source_length))
            steps = sum(stage.steps or 0 for stage in stages) or steps
            object.__setattr__(self, "run", replace(self.run, steps=steps, tokens=None))
        object.__setattr__(self, "stages", tuple(stages))

    def _check_positions(self) -> None:
        positions = {"source": self.model.encoder.positions.limit}
        if self.model.decoder:
            positions["target"] = self.model.decoder.positions.limit
        for number, data in enumerate([self.data, *(stage.data for stage in self.stages)]):
            for side, limit in positions.items():
                if data is None or limit is None or getattr(data, f"{side}_length") <= limit:
                    continue
                section = f"stages[{number - 1}].data" if number else "data"
                part = "encoder" if side == "source" else "decoder"
                raise FarspanError(
                    f"{section}.{side}_length is {getattr(data, f'{side}_length')}, but model.{part}.positions.count "
                    f"is {limit}; raise the positions or lower the length"
                )

    def _check_selection(self) -> None:
        best, evaluation = self.checkpoint.best, self.evaluation
        if best is not None and evaluation is None:
            raise FarspanError(f"checkpoint.best is {best!r}, but nothing is evaluated; add an evaluation section")
        if evaluation and evaluation.patience and best is None:
            raise FarspanError(
                f"evaluation.patience is {evaluation.patience}, but no metric chooses the best checkpoint; set "
                "checkpoint.best, e.g. to held_out_loss"
            )

    @cached_property
    def curriculum(self) -> tuple[Stage, ...]:
        """The stages of training with every value filled in; one stage if the recipe lists none.

        A run of epochs has a stage of one step here before ``with_samples``.

        Each number of ``run.extend`` adds a stage with the values of the last one. Its learning rate is that of a run
        that had the additional steps from the start: a schedule that decays to the end of the run is stretched, so that
        its rate rises again, without a second warm-up; a schedule that does not depend on the length of the run, or has
        ``schedule.steps``, continues.
        """
        stages: list[Stage] = []
        for config in self.stages or (StageConfig(steps=self.run.steps or 1),):
            previous, data = stages[-1] if stages else None, config.data or self.data
            first, steps = previous.last_step if previous else 0, config.steps or 1
            same_data = next((stage for stage in reversed(stages) if stage.data == data), None)
            try:  # the encoder checks the pattern
                encoder = replace(self.model.encoder, attention=config.attention or self.model.encoder.attention)
            except FarspanError as error:
                raise FarspanError(f"stages[{len(stages)}].attention: {error}") from None
            stages.append(
                Stage(
                    first_step=first,
                    last_step=first + steps,
                    first_sample=same_data.samples(same_data.last_step).start if same_data else 0,
                    data=data,
                    model=replace(self.model, encoder=encoder),
                    batch_size=config.batch_size or self.run.batch_size,
                    micro_batch_size=config.micro_batch_size or self.run.micro_batch_size,
                    learning_rate=config.learning_rate or self.optimizer.learning_rate,
                    schedule=config.schedule or self.schedule,
                    schedule_start=first if config.schedule else 0,
                    schedule_steps=steps if config.schedule else self.run.steps or 1,
                    section=f"stages[{len(stages)}].data" if config.data else "data",
                )
            )
        for steps in self.run.extend:
            stages.append(stages[-1].extend(steps))
        return tuple(stages)

    def with_samples(self, samples: int) -> Recipe:
        """Return the recipe with ``run.steps`` in place of ``run.epochs``."""
        run = self.run
        if run.epochs is None:
            return self
        steps = math.ceil(run.epochs * samples / run.batch_size)
        return replace(self, run=replace(run, steps=steps, epochs=None))

    @cached_property
    def held_out_data(self) -> DataConfig | None:
        """Data section of evaluation: the sources of ``evaluation`` with the widths of ``data``; else None."""
        evaluation, data = self.evaluation, self.data
        if evaluation is None:
            return None
        none = replace(
            data,
            corpus="",
            masks=None,
            masks_options={},
            objective=None,
            pairs="",
            documents=None,
            examples=None,
            mixture=(),
            packing=False,
        )
        if evaluation.mixture:
            return replace(none, task=None, mixture=evaluation.mixture)
        if evaluation.corpus or not any(source.pairs for source in data.sources):
            objective = None if evaluation.masks else data.objective
            return replace(none, corpus=evaluation.corpus, masks=evaluation.masks, objective=objective, task=None)
        if evaluation.pairs:
            return replace(none, pairs=evaluation.pairs, documents=evaluation.documents, split=evaluation.split)
        mixture = tuple(
            replace(source, split=evaluation.split, examples=None) for source in data.mixture if source.pairs
        )
        return replace(none, pairs=data.pairs, documents=data.documents, split=evaluation.split, mixture=mixture)

    def identity(self) -> dict[str, Any]:
        """Values that must not change when a run is continued, because they affect its numbers.

        Data is identified by its fingerprint, which the checkpoint also holds.
        """
        sections = asdict(self)
        run = ("steps", "batch_size", "seed", "precision", "compile")  # compiled layers draw dropout differently
        extended = {"extend": list(self.run.extend)} if self.run.extend else {}
        return {
            **{name: sections[name] for name in ("model", "loss", "optimizer", "schedule")},
            "data": _widths(sections["data"]),
            "stages": {str(number): _stage_identity(stage) for number, stage in enumerate(sections["stages"])},
            "run": {**{name: sections["run"][name] for name in run}, **extended},
            **({"generator": self.generator.identity()} if self.generator else {}),
        }


def _stage_identity(stage: dict[str, Any]) -> dict[str, Any]:
    """Values of a stage that affect the run's numbers."""
    kept = {name: value for name, value in stage.items() if name not in ("micro_batch_size", "tokens")}
    return {**kept, "data": stage["data"] and _widths(stage["data"])}


def _widths(data: dict[str, Any]) -> dict[str, Any]:
    """Values of a data section that the fingerprint of its sources does not cover."""
    names = "source_length", "target_length", "source_multiple", "target_multiple", "decoder_start", "across_documents"
    return {name: data[name] for name in names}


def load_recipe(name: str, assignments: Iterable[str] = ()) -> Recipe:
    """Read a packaged recipe by name (``tiny``) or any recipe by path (``my/recipe.toml``).

    A file with ``extends = "other"`` (a packaged name, or a path relative to its own folder) overrides that recipe:
    tables are merged key by key; other values, and tables with another ``pattern`` or ``scheme``, are replaced.

    Args:
        name: name or path of the recipe.
        assignments: ``dotted.key=value`` each, which override the file's values.

    Raises:
        FarspanError: no such recipe, invalid TOML, files that extend each other, or a wrong key or value, with file,
            section, key and cure.
    """
    values, read = read_tables(name)
    assignments = list(assignments)
    values = override(values, assignments)
    if isinstance(values.get("run"), dict) and isinstance(own := override({}, assignments).get("run"), dict):
        values["run"] = {**without_other_length(values["run"], own), **own}
    stages = values.get("stages")
    if isinstance(stages, list) and isinstance(values.get("data"), dict):
        values["stages"] = [_complete(stage, values["data"]) for stage in stages]
    return parse(Recipe, values, " over ".join(read))


def _complete(stage: Any, data: dict[str, Any]) -> Any:
    """Complete a stage's data section from the recipe's; sources are replaced as a whole."""
    if not isinstance(stage, dict) or not isinstance(stage.get("data"), dict):
        return stage
    own = stage["data"]
    if any(name in own for name in ("corpus", "pairs", "mixture")):
        data = {name: value for name, value in data.items() if name not in (*SOURCE_KEYS, "mixture")}
    return {**stage, "data": merge(data, own)}


def read_recipe(directory: Path) -> Recipe | None:
    """Read the recipe in a run's directory; None if there is none."""
    path = directory / RECIPE
    if not path.is_file():
        return None
    try:
        return parse(Recipe, read_sealed(path)["recipe"], str(path))
    except (DamagedError, KeyError) as error:
        raise FarspanError(f"{path}: is damaged ({error}); continue the run, which writes it again") from None
