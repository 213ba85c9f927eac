"""Opening of a model and checks of model, pairs, task and options, before any text is generated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from corpora.errors import FarspanError
from corpora.schemas.pairs import PairLengths, PairSet
from corpora.settings import parse
from corpora.storage.manifest import Manifest
from corpora.storage.ragged import Ragged
from corpora.tokenizers.load import load_tokenizer_of
from objectives.api.special_tokens import END, PAD, SpecialTokens
from objectives.tasks.protocol import NO_TARGET, PairFacts
from trainer.conversion.convert import read_model
from trainer.conversion.model_folder import Model, is_model_folder, weights_sha256
from trainer.data.config import DataConfig, Source, TaskConfig, naming_source
from trainer.data.loader import LoadingConfig
from trainer.data.paired import equip_task
from trainer.generation.config import GenerationConfig
from trainer.generation.generate import check_first_tokens
from trainer.model.build import make_model
from trainer.model.config import ModelConfig
from trainer.model.seq2seq import Seq2Seq
from trainer.prediction.predictor import Predictor
from trainer.prediction.validation import HeldOutPairs, Validation
from trainer.recipe import Recipe, read_recipe
from trainer.run_config import ValidationConfig


@dataclass(frozen=True)
class OpenedModel:
    """A model with its weights, and the recipe of its training if known."""

    path: Path  # as given by the user
    model: Model
    recipe: Recipe | None  # of the run; None for a folder, and for a run without a stored recipe
    entry: Mapping[str, Any]  # description of the model in a manifest of predictions

    @property
    def decoder_positions(self) -> int | None:
        """Rows of the decoder's position table; None without one."""
        assert self.model.config.decoder
        return self.model.config.decoder.positions.limit

    def build(self, device: torch.device, dtype: torch.dtype = torch.float32) -> Seq2Seq:
        """Build the model in evaluation mode."""
        with torch.device("meta"):  # without initial weights, which would be replaced
            model = make_model(self.model.config, self.model.vocabulary.size)
        assert isinstance(model, Seq2Seq)
        model.load_state_dict(self.model.state, assign=True)
        return model.to(device, dtype).eval().requires_grad_(False)

    def check_pairs(self, pairs: Manifest, folder: str) -> None:
        """Check that the model knows the ids of the pairs in ``folder``."""
        known, theirs = self.model.vocabulary.tokenizer_fingerprint, pairs.tokenizer["fingerprint"]
        if known not in (None, theirs):
            raise FarspanError(
                f"{folder}: was made with the tokenizer {theirs[:12]}, the model {self.path} with "
                f"{str(known)[:12]}; make documents and pairs with the model's tokenizer"
            )
        if pairs.tokenizer["vocab_size"] > self.model.vocabulary.size:
            raise FarspanError(
                f"{folder}: its tokenizer has {pairs.tokenizer['vocab_size']:,} ids, the model {self.path} "
                f"{self.model.vocabulary.size:,} rows; make documents and pairs with the model's tokenizer"
            )

    def special_for(self, needed: SpecialTokens, pairs: Manifest) -> SpecialTokens:
        """Return the model's special tokens with those that a task may insert into ``pairs``.

        Tokens that neither the model nor the tokenizer knows have ids beyond the model's vocabulary: a folder of
        Hugging Face has no ``<doc-sep>``, and needs none for pairs about single documents.
        """
        special = self.model.vocabulary.special
        always = dict.fromkeys((PAD, END, self.model.vocabulary.decoder_start))
        if lacking := [name for name in always if name not in special.ids]:
            raise FarspanError(f"{self.path}: the model has no special token {', '.join(lacking)}; give another model")
        return SpecialTokens.merge([special, needed], pairs.tokenizer["vocab_size"])


def open_model(path: Path, checkpoint: str | None = None) -> OpenedModel:
    """Read a model that can generate."""
    model = read_model(path, checkpoint)
    if model.config.decoder is None:
        raise FarspanError(f"{path}: the model has no decoder, so it generates no text; give an encoder-decoder")
    if model.parent.get("kind") == "farspan.checkpoint" and not is_model_folder(path):
        run, digest = _run_of(path), model.parent["weights_sha256"]
        entry, recipe = {"run": run.name, "checkpoint": model.parent["name"], "sha256": digest}, read_recipe(run)
    else:
        digest = weights_sha256(path) if is_model_folder(path) else _digest(model.state)
        entry, recipe = {"folder": path.resolve().name, "checkpoint": None, "sha256": digest}, None
    return OpenedModel(path, model, recipe, {**entry, "vocab_size": model.vocabulary.size})


def _run_of(path: Path) -> Path:
    """Return the directory of the run that contains ``path``, or ``path`` itself."""
    place = path.resolve()
    while place.name == "checkpoints" or place.name.startswith("step-"):
        place = place.parent
    return place


def _digest(state: Mapping[str, Tensor]) -> str:
    """Hash of the names and values of all weights."""
    digest = sha256()
    for name in sorted(state):
        digest.update(name.encode())
        digest.update(state[name].contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def make_predictor(
    opened: OpenedModel, pairs: PairSet, task: TaskConfig, config: GenerationConfig, batch_positions: int = 1 << 16
) -> Predictor:
    """Check model, pairs, task and options against each other, and make the predictor."""
    opened.check_pairs(pairs.manifest, pairs.folder)
    loaded = equip_task(task, pairs.folder)
    special = opened.special_for(loaded.validate(PairFacts.of(pairs.manifest)), pairs.manifest)
    encoder, decoder = opened.model.config.encoder.positions.limit, opened.decoder_positions
    length = loaded.options.get("source_length")
    if encoder is not None and isinstance(length, int) and length > encoder:
        raise FarspanError(
            f"task {loaded.name}: source_length is {length:,}, but the encoder of {opened.path} has {encoder:,} "
            f"positions; set it to at most {encoder} (--set source_length={encoder})"
        )
    if decoder is not None and config.max_tokens + 1 > decoder:
        raise FarspanError(
            f"generation.max_tokens is {config.max_tokens}, but the decoder of {opened.path} has {decoder:,} "
            f"positions, one of them for the start; set max_tokens to at most {decoder - 1}"
        )
    check_first_tokens(config, special[END], opened.model.vocabulary.size)
    return Predictor(
        task=loaded,
        special=special,
        vocab_size=opened.model.vocabulary.size,
        tokenizer=load_tokenizer_of(pairs.folder),
        config=config,
        decoder_start=opened.model.vocabulary.decoder_start,
        source_limit=encoder,
        source_multiple=opened.recipe.data.source_multiple if opened.recipe else 1,
        batch_positions=batch_positions,
    )


def check_prompts(predictor: Predictor, pairs: PairSet, rows: np.ndarray, positions: int | None) -> None:
    """Check that a decoder of so many ``positions`` has room for each pair's prompt, and for the text after it.

    Only the lengths of the queries at ``(n,)`` int64 ``rows`` are read. A task that computes no lengths is checked in
    each batch of generation.
    """
    measure = getattr(predictor.task, "lengths", None)
    if measure is None or positions is None or not len(rows):
        return
    no_documents = Ragged(np.empty(0, np.int64), np.zeros(2, np.int64))

    def prompt_of(query: int) -> int:
        return int(measure(np.array([query]), no_documents, np.array([NO_TARGET])).prompt[0])

    wanted = predictor.config.max_tokens
    questions = getattr(predictor.task, "questions", 1)
    if prompt_of(questions * (PairFacts.of(pairs.manifest).max_query_tokens + 1) - 1) + wanted < positions:
        return  # there is room even after the longest queries of all splits
    first = predictor.group(pairs, rows)[:-1]
    queries = np.add.reduceat(PairLengths.of(pairs).queries[rows] + 1, first) - 1  # joined by separators
    longest = int(queries.argmax())
    prompt = prompt_of(int(queries[longest]))
    room = positions - 1 - prompt
    if wanted > room:
        cure = f"set max_tokens to at most {room}" if room > 0 else "cut queries (query_length)"
        (name,) = pairs.values("pair_id", rows[first[[longest]]])
        raise FarspanError(
            f"generation.max_tokens is {wanted}, but the decoder has {positions:,} positions, one "
            f"for the start and {prompt:,} for the prompt of pair {name!r}; {cure}"
        )


def open_validation(
    config: ValidationConfig, data: DataConfig, model: ModelConfig, loading: LoadingConfig, trained_on: Source
) -> Validation:
    """Open the pairs of ``data`` for validation by generation, with the special tokens of the training data."""
    if model.decoder is None:
        raise FarspanError("evaluation.generation is set, but the model has no decoder; leave the section out")
    special, decoder = trained_on.special, model.decoder.positions.limit
    if decoder is not None and config.max_tokens + 1 > decoder:
        raise FarspanError(
            f"evaluation.generation.max_tokens is {config.max_tokens}, but the decoder has {decoder:,} positions, one "
            f"of them for the start; set it to at most {decoder - 1}"
        )
    parts = []
    for named in data.sources:
        with naming_source(data, named.name, "evaluation"):
            if not named.pairs or named.task is None:
                raise FarspanError("generation needs pairs, but none are named; set evaluation.pairs and data.task")
            pairs = PairSet(named.pairs, named.documents, loading.verify == "lazily", loading.cache)
            if pairs.cache:
                pairs.check_files()
                pairs.documents.check_files()
            if pairs.manifest.tokenizer["fingerprint"] != trained_on.tokenizer_fingerprint:
                raise FarspanError(f"{pairs.folder}: was made with another tokenizer than the training data")
            check_first_tokens(config.search, special[END], special.vocab_size)
            predictor = Predictor(
                task=equip_task(named.task, pairs.folder),
                special=special,
                vocab_size=special.vocab_size,
                tokenizer=load_tokenizer_of(pairs.folder),
                config=config.search,
                decoder_start=data.decoder_start,
                source_limit=model.encoder.positions.limit,
                source_multiple=data.source_multiple,
                batch_positions=config.batch_positions,
            )
            rows = pairs.rows_of(named.split)[: config.limit]
            check_prompts(predictor, pairs, rows, decoder)
            parts.append(HeldOutPairs(named.name, pairs, rows, predictor))
    return Validation.of(parts, config.metrics)


def choose_task(opened: OpenedModel, name: str | None, preset: str | None, options: Mapping[str, Any]) -> TaskConfig:
    """Return the named task, or that of the run, with ``options`` in place of its own."""
    if stray := [key for key in options if key.startswith("generation.")]:
        key = stray[0].removeprefix("generation.")
        raise FarspanError(f"--set {stray[0]}: not an option of the task; give --generation {key}=VALUE")
    if name or preset:
        return TaskConfig(name=name or str(preset), preset=preset if name else None, options=dict(options))
    sources = opened.recipe.data.sources if opened.recipe else ()
    tasks = [source.task for source in sources if source.task]
    if not tasks or any(task != tasks[0] for task in tasks):
        reason = "was trained on several tasks" if tasks else "names no task"
        raise FarspanError(
            f"{opened.path}: the model {reason}; name a task that renders the pairs, or a preset of one: --task bart_ls"
        )
    return replace(tasks[0], options={**tasks[0].options, **options})


def choose_config(opened: OpenedModel, options: Mapping[str, Any]) -> GenerationConfig:
    """Return the options of generation: those of the run's recipe, overridden by ``options``.

    If neither sets ``max_tokens``, it is the length of targets in training, at most 256.
    """
    data, decoder = opened.recipe and opened.recipe.data, opened.decoder_positions
    evaluation, known = opened.recipe and opened.recipe.evaluation, {field.name for field in fields(GenerationConfig)}
    stored = asdict(evaluation.generation) if evaluation and evaluation.generation else {}
    values = {name: value for name, value in stored.items() if name in known}
    if "max_tokens" not in values:
        limits = [data.target_length if data else None, opened.model.parent.get("target_length"), decoder]
        values["max_tokens"] = min([256, *(limit - 1 for limit in limits if limit)])
    return parse(GenerationConfig, {**values, **options}, "--generation")
