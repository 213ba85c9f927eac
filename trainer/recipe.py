"""A recipe: everything that a training run needs to be told, from one TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from corpora.errors import FarspanError, nearest
from corpora.settings import override, parse
from trainer.checkpoint.checkpoints import CheckpointConfig
from trainer.data.config import DataConfig, SourceConfig, require_names
from trainer.data.curriculum import Stage, StageConfig, number_at
from trainer.data.prefetch import LoadingConfig
from trainer.metrics import MetricsConfig
from trainer.model.config import ModelConfig
from trainer.model.loss import LossConfig
from trainer.optim.optimizer import OptimizerConfig
from trainer.optim.schedule import ScheduleConfig
from trainer.parallel.wrapping import ParallelConfig
from trainer.scorer.config import GeneratorConfig, sources_with_scorer, with_scorer

RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The run itself.

    Attributes:
        directory: where metrics and checkpoints go; a run found there is continued.
        steps: updates of the whole run; the learning rate decays over them, or over ``schedule.steps``.
        batch_size: sequences an update.
        micro_batch_size: sequences a forward pass.
        initial_model: the model folder, made by ``farspan convert``, that training begins with; None draws all weights.
        seed: of weights, order and dropout; masks drawn on the fly have ``data.objective.seed``.
        precision: ``bf16`` computes in bfloat16 over float32 weights; ``fp32`` does not.
        activation_checkpointing: ``layer`` keeps only layer inputs for the backward pass, ``selective`` also the
            results of matrix products and attention; what is not kept is computed again.
        compile: generate faster code for each layer; the first update takes minutes longer. That code draws dropout in
            another way, so a run keeps what it began with.
        device: ``auto`` is the accelerator where there is one.
        non_finite: ``skip`` leaves out updates whose loss or gradient is NaN or infinite, up to ``max_skipped`` in a
            row; ``abort`` stops at the first.
        max_skipped: updates in a row that may be left out.
        dry_run: pass the largest batch forward and backward before the first update, to run out of memory now or never.

    Raises:
        FarspanError: counts below 1, no directory.
    """

    directory: str
    steps: int
    batch_size: int
    micro_batch_size: int = 1
    initial_model: str | None = None
    seed: int = 42
    precision: Literal["bf16", "fp32"] = "fp32"
    activation_checkpointing: Literal["none", "selective", "layer"] = "none"
    compile: bool = False
    device: Literal["auto", "cpu", "cuda"] = "auto"
    non_finite: Literal["skip", "abort"] = "skip"
    max_skipped: int = 10
    dry_run: bool = True

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "micro_batch_size", "max_skipped"):
            if getattr(self, name) < 1:
                raise FarspanError(f"run.{name} is {getattr(self, name)}; it must be at least 1")
        if not self.directory:
            raise FarspanError("run.directory is ''; name a folder, which need not be there yet")


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Loss on held-out sequences, masked as in training.

    Attributes:
        corpus, masks: as in the data section; a mask set for an objective drawn on the fly is not needed.
        mixture: several sources instead, each measured by itself; weights mean nothing here.
        every: steps between evaluations; there is one at the end too.
        sequences: how many of each corpus's first sequences.

    Raises:
        FarspanError: counts below 1, a mixture beside a corpus, two sources of one name.
    """

    corpus: str = ""
    masks: str | None = None
    mixture: tuple[SourceConfig, ...] = ()
    every: int = 1000
    sequences: int = 256

    def __post_init__(self) -> None:
        for name in ("every", "sequences"):
            if getattr(self, name) < 1:
                raise FarspanError(f"evaluation.{name} is {getattr(self, name)}; it must be at least 1")
        if self.mixture and (self.corpus or self.masks):
            raise FarspanError(
                "evaluation.mixture stands beside evaluation.corpus or masks; name the sources in one of the two ways"
            )
        require_names(self.mixture, "evaluation")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All sections.

    Raises:
        FarspanError: data wider than the model's position tables, warm-up longer than the run, stages that are not as
            long as the run.
    """

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
        self._ask_generator()
        positions = {"source": self.model.encoder.positions.limit}
        if self.model.decoder:
            positions["target"] = self.model.decoder.positions.limit
        for number, data in enumerate([self.data, *(stage.data for stage in self.stages)]):
            for side, room in positions.items():
                if data is None or room is None or getattr(data, f"{side}_length") <= room:
                    continue
                section = f"stages[{number - 1}].data" if number else "data"
                part = "encoder" if side == "source" else "decoder"
                raise FarspanError(
                    f"{section}.{side}_length is {getattr(data, f'{side}_length')}, but model.{part}.positions.count "
                    f"is {room}; raise the positions or lower the length"
                )
        if self.schedule.warmup_steps > self.run.steps:
            raise FarspanError(
                f"schedule.warmup_steps is {self.schedule.warmup_steps}, but run.steps is {self.run.steps}; "
                "warm up for fewer steps"
            )
        staged = sum(stage.steps for stage in self.stages)
        if self.stages and staged != self.run.steps:
            raise FarspanError(
                f"the stages have {staged} steps together, but run.steps is {self.run.steps}; make them equal"
            )
        _ = self.all_stages  # refuses what cannot be

    def _ask_generator(self) -> None:
        """A frozen generator is the scorer of every objective that names none; a trained one is not known here."""
        if self.generator is None:
            return
        if not self.model.decoder:
            raise FarspanError(
                "generator chooses what a decoder has to say, but the model has none; add a model.decoder section, or "
                "remove the generator's"
            )
        if self.generator.mode == "joint":
            return
        scorer = self.generator.initial
        assert scorer is not None
        data = with_scorer(self.data, scorer)
        stages = tuple(replace(stage, data=stage.data and with_scorer(stage.data, scorer)) for stage in self.stages)
        sections = [data, *(stage.data for stage in stages if stage.data)]
        objectives = [source.objective for section in sections for source in section.sources]
        if not any(objective and objective.scorer == scorer for objective in objectives):
            raise FarspanError(
                "generator.mode is 'frozen', but no objective in the data asks it: set data.objective to model_based "
                "without a scorer, or remove the generator section"
            )
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "stages", stages)
        if self.evaluation:
            mixture = sources_with_scorer(self.evaluation.mixture, scorer)
            object.__setattr__(self, "evaluation", replace(self.evaluation, mixture=mixture))

    @cached_property
    def all_stages(self) -> tuple[Stage, ...]:
        """What holds in which update; one stage where the recipe names none."""
        found: list[Stage] = []
        for stage in self.stages or (StageConfig(steps=self.run.steps),):
            before, data = found[-1] if found else None, stage.data or self.data
            first = before.last_step if before else 0
            goes_on = before is not None and before.data == data
            try:  # the encoder knows which patterns it can have
                encoder = replace(self.model.encoder, attention=stage.attention or self.model.encoder.attention)
            except FarspanError as error:
                raise FarspanError(f"stages[{len(found)}].attention: {error}") from None
            found.append(
                Stage(
                    first_step=first,
                    last_step=first + stage.steps,
                    first_sample=before.samples(first).start if before and goes_on else 0,
                    data=data,
                    attention=encoder.attention,
                    batch_size=stage.batch_size or self.run.batch_size,
                    micro_batch_size=stage.micro_batch_size or self.run.micro_batch_size,
                    learning_rate=stage.learning_rate or self.optimizer.learning_rate,
                    schedule=stage.schedule or self.schedule,
                    schedule_start=first if stage.schedule else 0,
                    schedule_steps=stage.steps if stage.schedule else self.run.steps,
                    section=f"stages[{len(found)}].data" if stage.data else "data",
                )
            )
        return tuple(found)

    def stage_at(self, step: int) -> Stage:
        """The stage of update ``step``, counted from 0; of the last one for updates after the run."""
        return self.all_stages[number_at(self.all_stages, step)]

    def identity(self) -> dict[str, Any]:
        """What a run must keep to be continued: all that changes its numbers, nothing that changes its speed or place.

        Data counts by its fingerprint, which the checkpoint holds too.
        """
        sections = asdict(self)
        run = ("steps", "batch_size", "seed", "precision", "compile")  # compiled layers drop other values
        joint = self.generator is not None and self.generator.mode == "joint"
        return {
            **{name: sections[name] for name in ("model", "optimizer", "schedule", "loss")},
            "data": _widths(sections["data"]),
            "stages": {str(number): _bound(stage) for number, stage in enumerate(sections["stages"])},
            "run": {name: sections["run"][name] for name in run},
            **({"generator": {name: sections["generator"][name] for name in ("model", "weight")}} if joint else {}),
        }


def _bound(stage: dict[str, Any]) -> dict[str, Any]:
    """Of a stage, what changes the run's numbers."""
    kept = {name: value for name, value in stage.items() if name != "micro_batch_size"}
    return {**kept, "data": stage["data"] and _widths(stage["data"])}


def _widths(data: dict[str, Any]) -> dict[str, Any]:
    """Of a data section, what does not come with the fingerprint of its sources."""
    names = "source_length", "target_length", "source_multiple", "target_multiple", "decoder_start", "across_documents"
    return {name: data[name] for name in names}


def load_recipe(name: str, assignments: Iterable[str] = ()) -> Recipe:
    """Read a packaged recipe by name (``tiny``) or any by path (``my/recipe.toml``).

    A file that says ``extends = "other"`` (a packaged name, or a path from its own folder) is put over that one: tables
    are merged key by key, everything else is replaced, as is a table of another ``pattern`` or ``scheme``.

    Args:
        name: of the recipe.
        assignments: ``dotted.key=value`` each, put over the file's values.

    Raises:
        FarspanError: no such recipe, no TOML, files that extend each other, or a wrong key or value, with file,
            section, key and cure.
    """
    values, read = _read(name, Path(), ())
    values = override(values, assignments)
    stages = values.get("stages")
    if isinstance(stages, list) and isinstance(values.get("data"), dict):
        values["stages"] = [_completed(stage, values["data"]) for stage in stages]
    return parse(Recipe, values, " over ".join(read))


_SOURCES = ("corpus", "masks", "objective", "masks_options", "mixture")


def _completed(stage: Any, data: dict[str, Any]) -> Any:
    """A stage whose data section has what it leaves out from the recipe's; sources are replaced together."""
    if not isinstance(stage, dict) or not isinstance(stage.get("data"), dict):
        return stage
    own = stage["data"]
    if any(name in own for name in ("corpus", "mixture")):
        data = {name: value for name, value in data.items() if name not in _SOURCES}
    return {**stage, "data": _merged(data, own)}


def _read(name: str, folder: Path, above: tuple[str, ...]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The tables of recipe ``name`` over those that it extends, and all files read, the uppermost first.

    Args:
        folder: where a path starts.
        above: files that led here.
    """
    path = _find(name, folder)
    if str(path) in above:
        chain = " extends ".join(Path(file).name for file in (*above[above.index(str(path)) :], str(path)))
        raise FarspanError(f"{chain}: recipes extend each other in a circle; remove one `extends`")
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FarspanError(f"{path.name} is no TOML: {error}") from None
    base = values.pop("extends", None)
    if base is None:
        return values, (path.name,)
    if not isinstance(base, str):
        raise FarspanError(f"{path.name}: extends is {base!r}; give one name or path, in quotes, above all sections")
    below, read = _read(base, path.parent, (*above, str(path)))
    return _merged(below, values), (path.name, *read)


def _find(name: str, folder: Path) -> Path:
    packaged = {path.stem: path for path in RECIPES.glob("*.toml")}
    path = packaged.get(name, folder / name)
    if not path.is_file():
        raise FarspanError(
            f"no recipe {name!r}{nearest(name, packaged)}; give the path of a TOML file or one of: "
            f"{', '.join(sorted(packaged))}"
        )
    return path.resolve()


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = below.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and not _another_kind(old, value):
            value = _merged(old, value)
        merged[key] = value
    return merged


def _another_kind(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether ``new`` names another pattern or scheme than ``old``, whose keys then mean nothing to it."""
    return any(tag in new and new[tag] != old.get(tag) for tag in ("pattern", "scheme"))
