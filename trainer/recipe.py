"""A recipe: everything that a training run needs to be told, from one TOML file."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from corpora.errors import FarspanError
from trainer.data import DataConfig
from trainer.model.config import ModelConfig
from trainer.optimizer import OptimizerConfig, ScheduleConfig
from trainer.settings import override, parse

RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The run itself.

    Attributes:
        directory: where metrics and checkpoints go; a run found there is continued.
        steps: updates of the whole run; the learning rate decays over them.
        batch_size: sequences an update.
        micro_batch_size: sequences a forward pass.
        initial_model: the model folder, made by ``farspan convert``, that training begins with; None draws all weights.
        seed: of weights, order, dropout and masks drawn on the fly.
        precision: ``bf16`` computes in bfloat16 over float32 weights; ``fp32`` does not.
        activation_checkpointing: ``layer`` keeps only layer inputs for the backward pass.
        compile: generate faster code for each layer; the first update takes minutes longer.
        device: ``auto`` is the accelerator where there is one.
        log_every: steps between plain progress lines; the metrics file has every step.
        checkpoint_every: steps between checkpoints; there is always one at the end.
        keep_checkpoints: newest ones that stay.
        tensorboard: also write event files into the directory; needs the extra ``tracking``.

    Raises:
        FarspanError: counts below 1.
    """

    directory: str
    steps: int
    batch_size: int
    micro_batch_size: int = 1
    initial_model: str | None = None
    seed: int = 42
    precision: Literal["bf16", "fp32"] = "fp32"
    activation_checkpointing: Literal["none", "layer"] = "none"
    compile: bool = False
    device: Literal["auto", "cpu", "cuda"] = "auto"
    log_every: int = 10
    checkpoint_every: int = 1000
    keep_checkpoints: int = 3
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "micro_batch_size", "log_every", "checkpoint_every", "keep_checkpoints"):
            if getattr(self, name) < 1:
                raise FarspanError(f"run.{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Loss on held-out sequences, masked as in training.

    Attributes:
        corpus, masks: as in the data section; a mask set for an objective drawn on the fly is not needed.
        every: steps between evaluations; there is one at the end too.
        sequences: how many of the corpus's first sequences.

    Raises:
        FarspanError: counts below 1.
    """

    corpus: str = ""
    masks: str | None = None
    every: int = 1000
    sequences: int = 256

    def __post_init__(self) -> None:
        for name in ("every", "sequences"):
            if getattr(self, name) < 1:
                raise FarspanError(f"evaluation.{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All sections.

    Raises:
        FarspanError: data wider than the model's position tables, warm-up longer than the run.
    """

    model: ModelConfig
    data: DataConfig
    run: RunConfig
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    evaluation: EvaluationConfig | None = None

    def __post_init__(self) -> None:
        positions = {"source": self.model.encoder.positions.limit}
        if self.model.decoder:
            positions["target"] = self.model.decoder.positions.limit
        for side, room in positions.items():
            length, part = getattr(self.data, f"{side}_length"), "encoder" if side == "source" else "decoder"
            if room is not None and length > room:
                raise FarspanError(
                    f"data.{side}_length is {length}, but model.{part}.positions.count is {room}; "
                    "raise the positions or lower the length"
                )
        if self.schedule.warmup_steps > self.run.steps:
            raise FarspanError(
                f"schedule.warmup_steps is {self.schedule.warmup_steps}, but run.steps is {self.run.steps}; "
                "warm up for fewer steps"
            )

    def identity(self) -> dict[str, Any]:
        """What a run must keep to be continued: all that changes its numbers, nothing that changes its speed or place.

        Data counts by its fingerprint, which the checkpoint holds too.
        """
        sections = asdict(self)
        data = (
            "source_length",
            "target_length",
            "source_multiple",
            "target_multiple",
            "decoder_start",
            "across_documents",
        )
        run = ("steps", "batch_size", "seed", "precision")
        return {
            **{name: sections[name] for name in ("model", "optimizer", "schedule")},
            "data": {name: sections["data"][name] for name in data},
            "run": {name: sections["run"][name] for name in run},
        }


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
    return parse(Recipe, override(values, assignments), " over ".join(read))


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
        close = difflib.get_close_matches(name, packaged, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise FarspanError(
            f"no recipe {name!r}{hint}; give the path of a TOML file or one of: {', '.join(sorted(packaged))}"
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
