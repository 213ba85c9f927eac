"""Contents of the files beside the weights: tokenizer, generation settings and model card, with the training."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.processors import TemplateProcessing

from corpora.errors import FarspanError, one_line
from corpora.printing import format_count
from corpora.storage import files
from corpora.storage.manifest_file import NAME, manifest_sha256
from objectives.api.special_tokens import BEGIN, END, MASK, PAD, UNKNOWN
from trainer.checkpoint.run_files import METRICS, STARTS, read_lines
from trainer.conversion.export.sentencepiece_json import convert_sentencepiece
from trainer.conversion.model_folder import Model
from trainer.data.curriculum import Stage
from trainer.model.patterns.window import Window
from trainer.recipe import Recipe, read_recipe

_TOKEN_FIELDS = {PAD: "pad_token", BEGIN: "bos_token", END: "eos_token", UNKNOWN: "unk_token", MASK: "mask_token"}


def longest_source(model: Model) -> int | None:
    """Return the maximum source length, from training or from the position table; None if unlimited."""
    return model.parent.get("source_length") or model.config.encoder.positions.limit


def longest_target(model: Model) -> int | None:
    """Return the maximum target length, from training or from the position table; None if unlimited."""
    assert model.config.decoder
    return model.parent.get("target_length") or model.config.decoder.positions.limit


def tokenizer_files(model: Model) -> dict[str, bytes]:
    """Make the tokenizer's files, with the model's additional special tokens and the framing of texts in training."""
    files = dict(model.tokenizer)
    tokenizer = _loaded(model, files)
    if tokenizer is None:
        return files
    known = set(tokenizer.get_vocab(with_added_tokens=True).values())
    by_id = sorted((number, name) for name, number in model.vocabulary.special.ids.items() if number not in known)
    for number, name in by_id:
        if tokenizer.token_to_id(name) is None and number == tokenizer.get_vocab_size(with_added_tokens=True):
            tokenizer.add_special_tokens([name])
    if model.vocabulary.frame is not None:
        tokenizer.post_processor = _framing(tokenizer, model)
        # A model-specific class (BartTokenizer) would frame texts by its own rule.
        files.pop("tokenizer_config.json", None)
    files["tokenizer.json"] = tokenizer.to_str().encode()
    stored = json.loads(files.get("tokenizer_config.json", b"{}"))
    special = model.vocabulary.special.ids
    named = {field: tokenizer.id_to_token(special[name]) for name, field in _TOKEN_FIELDS.items() if name in special}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        # Without this, the class would give the model token types, which none of these models takes.
        "model_input_names": ["input_ids", "attention_mask"],
        **{field: text for field, text in named.items() if text},
        **({"model_max_length": longest} if (longest := longest_source(model)) else {}),
        **stored,
    }
    files["tokenizer_config.json"] = json.dumps(config, indent=1).encode()
    return files


def _loaded(model: Model, files: Mapping[str, bytes]) -> tokenizers.Tokenizer | None:
    """Load ``files`` with the tokenizers library; None if it cannot express the tokenizer."""
    if "tokenizer.json" in files:
        try:
            return tokenizers.Tokenizer.from_str(files["tokenizer.json"].decode())
        except Exception as error:  # the library raises bare Exception
            raise FarspanError(
                f"tokenizer.json: the tokenizers library cannot read it ({one_line(error)}); restore the file, or give "
                "another tokenizer (--tokenizer)"
            ) from None
    pieces = next((data for name, data in files.items() if name.endswith(".model")), None)
    return None if pieces is None else convert_sentencepiece(pieces, model.vocabulary.special.ids.values())


def _framing(tokenizer: tokenizers.Tokenizer, model: Model) -> TemplateProcessing:
    """Make a post-processor that adds the special tokens around a text as in training."""
    frame = model.vocabulary.frame or ()
    numbers = [model.vocabulary.special.ids[name] for name in (BEGIN, END) if name in frame]
    texts = {number: tokenizer.id_to_token(number) for number in numbers}
    if missing := [str(number) for number, text in texts.items() if text is None]:
        raise FarspanError(
            f"the tokenizer has no token {', '.join(missing)}, which framed texts in training; give the tokenizer that "
            "the corpus was made with (--tokenizer)"
        )
    begin = [texts[model.vocabulary.special.ids[BEGIN]]] if BEGIN in frame else []
    end = [texts[model.vocabulary.special.ids[END]]] if END in frame else []
    return TemplateProcessing(
        single=[*begin, "$A", *end],
        pair=[*begin, "$A", *end, "$B", *end],
        special_tokens=[(text, number) for number, text in texts.items()],
    )


def generation_settings(model: Model, ids: Mapping[str, int]) -> dict[str, Any]:
    """Make ``generation_config.json``: the model's own settings, else greedy search up to the longest target."""
    longest = longest_target(model)
    start = {"decoder_start_token_id": model.vocabulary.special.ids[model.vocabulary.decoder_start]}
    return {**({"max_length": longest} if longest else {}), **model.generation, **ids, **start}


def model_card(model: Model, architecture: str, code: Mapping[str, bytes]) -> str:
    """Make ``README.md``: description, loading, requirements on the input, and the modelling files in ``code``."""
    frame = model.vocabulary.frame
    framing = (
        "The tokenizer adds special tokens around a text by its original rule."
        if frame is None
        else f"The tokenizer puts {_spoken(frame)}, as every source had in training."
    )
    longest, kind = longest_source(model), "encoder-decoder" if model.config.decoder else "encoder"
    parts = [
        "---\nlibrary_name: transformers\n---\n",
        f"# {architecture}\n",
        f"An {kind} written by `farspan convert`, of {sum(x.numel() for x in model.state.values()):,} "
        f"parameters{f', for sources of up to {longest:,} tokens' if longest else ''}.\n",
        _usage(model, bool(code)),
        f"{framing}\n",
    ]
    for name, content in code.items():
        parts.append(
            f"**Code.** `transformers` (version 5 or newer) has no class for this model. `trust_remote_code=True` runs "
            f"`{name}` of this folder, whose sha256 is `{sha256(content).hexdigest()}`, as farspan wrote it. Read it, "
            "and pin the revision that you read (`revision=` with a commit) when you load the model from a hub. Pad "
            "sources on the right.\n"
        )
    if isinstance(model.config.encoder.attention, Window):
        parts.append(
            "**Global attention.** The encoder sees a sliding window only, except at positions that "
            "`global_attention_mask` marks with 1. Mark those that were global in training: the first token at least, "
            "and every document separator for models of several documents (PRIMERA). Without any, distant parts of a "
            "text do not see each other, and `transformers` gives no warning.\n"
        )
    if model.parent:
        parts.append(f"Made from: `{json.dumps(dict(model.parent), sort_keys=True)}`\n")
    return "\n".join(parts)


def _spoken(frame: tuple[str, ...]) -> str:
    names = {BEGIN: "the beginning-of-text token before a text", END: "the end-of-text token behind a text"}
    return " and ".join(names[name] for name in (BEGIN, END) if name in frame) or "nothing around a text"


def _usage(model: Model, with_code: bool) -> str:
    if model.config.decoder is None:
        return "```python\nfrom transformers import AutoModelForMaskedLM, AutoTokenizer\n\n" + (
            'tokenizer = AutoTokenizer.from_pretrained(".")\nmodel = AutoModelForMaskedLM.from_pretrained(".")\n'
            'logits = model(**tokenizer(text, return_tensors="pt")).logits\n```\n'
        )
    trust = ", trust_remote_code=True" if with_code else ""
    lines = [
        "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer",
        "",
        'tokenizer = AutoTokenizer.from_pretrained(".")',
        f'model = AutoModelForSeq2SeqLM.from_pretrained("."{trust})',
        'inputs = tokenizer(text, truncation=True, return_tensors="pt")',
    ]
    if isinstance(model.config.encoder.attention, Window):
        lines += [
            'inputs["global_attention_mask"] = torch.zeros_like(inputs["input_ids"])',
            'inputs["global_attention_mask"][:, 0] = 1',
        ]
        lines.insert(0, "import torch")
    lines.append("print(tokenizer.decode(model.generate(**inputs)[0], skip_special_tokens=True))")
    return "```python\n" + "\n".join(lines) + "\n```\n"


def training_section(source: Path) -> str:
    """Describe the run that ``source`` belongs to in Markdown; empty if it is neither a run nor a checkpoint.

    Artefacts are given by the name of their folder; local ones also by the sha256 of their manifest.
    """
    run = source if (source / METRICS).is_file() else source.parent.parent
    try:
        recipe = read_recipe(run)
    except FarspanError:
        return ""
    if recipe is None:
        return ""
    name = next((start["recipe"] for start in read_lines(run / STARTS) if start.get("recipe")), "")
    return "\n".join([*_recipe(recipe, name), *_data(recipe.curriculum), *_scores(run)]) + "\n"


def _recipe(recipe: Recipe, name: str) -> list[str]:
    stages = recipe.curriculum
    origin = f"Recipe `{name}`: " if name else ""
    epochs = recipe.run.epochs if recipe.run.steps is None else None
    length = format_count(stages[-1].last_step, "update") if epochs is None else format_count(epochs, "epoch")
    optimizer = f"{recipe.optimizer.name}, learning rate {recipe.optimizer.learning_rate:g}"
    return [
        "## Training\n",
        f"{origin}{length} of {recipe.run.batch_size:,} sequences, sources of up to {recipe.data.source_length:,} and "
        f"targets of up to {recipe.data.target_length:,} tokens; {optimizer}; {recipe.run.precision}.\n",
    ]


def _data(stages: Sequence[Stage]) -> list[str]:
    """A line for each artefact that the run was trained on."""
    folders: dict[str, str] = {}
    for stage in stages:
        for source in stage.data.sources:
            task = source.task.name if source.pairs and source.task else source.objective and source.objective.name
            for folder in filter(None, (source.folder, source.masks)):
                folders[folder] = f", {task}" if task else ""
    lines = ["| data | sha256 of manifest.json |", "|---|---|"]
    for folder, task in folders.items():
        there = files.is_local(folder) and files.exists(os.path.join(folder, NAME))
        digest = f"`{manifest_sha256(folder)}`" if there else ""
        lines.append(f"| `{os.path.basename(folder.rstrip('/'))}`{task} | {digest} |")
    return [*lines, ""] if folders else []


def _scores(run: Path) -> list[str]:
    """Table of the last value of each evaluated metric."""
    found: dict[str, tuple[int, Any]] = {}
    for line in read_lines(run / METRICS):
        if "learning_rate" not in line:  # an evaluation
            numbers = {name: value for name, value in line.items() if isinstance(value, int | float) and name != "step"}
            found |= {name: (line.get("step", 0), value) for name, value in numbers.items()}
    lines = [f"| {name} | {value:.4f} | {step:,} |" for name, (step, value) in found.items()]
    return ["| score | value | update |", "|---|---:|---:|", *lines] if lines else []
