"""A whole training run: open the data, build or continue the model, update, evaluate, checkpoint, stop."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console

from corpora.errors import FarspanError
from trainer.checkpoint import Checkpoints
from trainer.conversion.convert import initial_model
from trainer.conversion.model_folder import weights_sha256
from trainer.conversion.vocabulary import Vocabulary
from trainer.data import Loader, Source
from trainer.distributed import Ranks
from trainer.interruption import Interruption
from trainer.loop import Trainer
from trainer.masked_corpus import open_source
from trainer.metrics import Display, open_metrics
from trainer.model.build import build_model
from trainer.model.masked_lm import MaskedLM
from trainer.model.seq2seq import Seq2Seq
from trainer.parallel import apply_activation_checkpointing, apply_compile
from trainer.recipe import EvaluationConfig, Recipe
from trainer.trained_model import vocabulary_of


@dataclass(frozen=True)
class Outcome:
    """Where a run stopped: after how many updates, and whether these are all that the recipe asks for."""

    step: int
    finished: bool


def train(
    recipe: Recipe,
    *,
    source: Source | None = None,
    held_out: Source | None = None,
    until: int | None = None,
    console: Console | None = None,
) -> Outcome:
    """Train, or go on with the run that ``run.directory`` holds.

    On SIGINT (Ctrl-C) or SIGTERM the update in progress is finished, a checkpoint is written, and the run returns;
    a second signal ends it at once.

    Args:
        recipe: everything about the run.
        source: what to train on; None opens what the recipe's data section names.
        held_out: what the recipe's evaluation section, if there is one, evaluates on; None opens what it names.
        until: stop after this update, with a checkpoint, though the recipe asks for more.
        console: where progress is shown.

    Raises:
        FarspanError: data that cannot be read or does not fit the model, a directory that holds another run.
    """
    _require_one_process()
    run, evaluation, directory = recipe.run, recipe.evaluation, Path(recipe.run.directory)
    device = _device(run.device)
    source = open_source(recipe.data, run.seed) if source is None else source
    loader = _loader(source, recipe)
    if evaluation:
        evaluated = _loader(_open_held_out(recipe, evaluation) if held_out is None else held_out, recipe)
    model = _begun_model(recipe, source)
    apply_activation_checkpointing(model, run.activation_checkpointing)
    if run.compile:
        apply_compile(model)
    trainer = Trainer(model, loader, recipe, device)
    identity = {**recipe.identity(), "corpus": {"fingerprint": source.fingerprint, "sequences": len(source)}}
    if run.initial_model:
        identity["initial_model"] = weights_sha256(Path(run.initial_model))
    vocabulary = vocabulary_of(source)

    display = Display(run.steps, recipe.metrics.log_every, console)
    last, ranks = min(until or run.steps, run.steps), Ranks.alone(device)
    with ExitStack() as stack:
        checkpoints = stack.enter_context(
            Checkpoints(directory / "checkpoints", recipe.checkpoint, ranks, identity, vocabulary, display.say)
        )
        found = checkpoints.restore(trainer.model, trainer.optimizer)
        if found is not None:
            trainer.step = found
            display.say(f"going on after step {found}")
        metrics = stack.enter_context(closing(open_metrics(recipe.metrics, directory, trainer.step)))
        stop = stack.enter_context(Interruption())
        stack.enter_context(display)
        while trainer.step < last and not stop.asked:
            record = trainer.update()
            metrics.write(record)
            display.update(record)
            step, ending = trainer.step, trainer.step == last or bool(stop.asked)
            if evaluation and not stop.asked and (ending or step % evaluation.every == 0):
                loss = trainer.evaluate(evaluated.first(evaluation.sequences))
                metrics.write({"step": step, "held_out_loss": loss})
                display.say(f"step {step}  held-out loss {loss:.4f}")
            if ending or stop.asked or step % recipe.checkpoint.every == 0:
                path = checkpoints.save(step, step * run.batch_size, trainer.model, trainer.optimizer)
                if stop.asked:
                    checkpoints.finish()
                    display.say(f"stopped by {stop.asked} after step {step}; the same command goes on from {path}")
    return Outcome(trainer.step, trainer.step == run.steps)


def _begun_model(recipe: Recipe, source: Source) -> Seq2Seq | MaskedLM:
    """The model before the first update: its weights drawn, or those of ``run.initial_model``."""
    model = build_model(recipe.model, source.special.vocab_size, recipe.run.seed)
    if recipe.run.initial_model:
        vocabulary = Vocabulary.of(source.special, source.tokenizer_fingerprint, recipe.data.decoder_start)
        model.load_state_dict(initial_model(Path(recipe.run.initial_model), recipe.model, vocabulary).state)
    return model


def _open_held_out(recipe: Recipe, evaluation: EvaluationConfig) -> Source:
    objective = None if evaluation.masks else recipe.data.objective
    data = replace(recipe.data, corpus=evaluation.corpus, masks=evaluation.masks, objective=objective)
    return open_source(data, recipe.run.seed)


def _loader(source: Source, recipe: Recipe) -> Loader:
    """A loader over ``source`` once it is known to suit the model."""
    if not len(source):
        raise FarspanError("the data holds no sequence; check data.corpus (and evaluation.corpus)")
    data = recipe.data
    if recipe.model.decoder and data.decoder_start not in source.special.ids:
        raise FarspanError(
            f"data.decoder_start is {data.decoder_start!r}, but the special tokens are "
            f"{', '.join(name for name in source.special.ids if 'sentinel' not in name)}; choose one of them"
        )
    loader = Loader(source, data, recipe.run.batch_size, recipe.run.micro_batch_size, recipe.run.seed)
    encoder_only = loader.first(1)[0].decoder_ids is None
    if encoder_only and recipe.model.decoder:
        raise FarspanError(
            "the objective asks for masked tokens in place; remove the recipe's model.decoder section, as --set "
            "model.decoder=none does"
        )
    if not encoder_only and not recipe.model.decoder:
        raise FarspanError("the objective asks for a target text; add a model.decoder section to the recipe")
    return loader


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise FarspanError("run.device is 'cuda', but PyTorch finds no CUDA device; set it to 'cpu' or 'auto'")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _require_one_process() -> None:
    size = os.environ.get("WORLD_SIZE", "1")
    if size != "1":
        raise FarspanError(
            f"WORLD_SIZE is {size}: training runs in one process; start it with --nproc-per-node 1 or without torchrun"
        )
