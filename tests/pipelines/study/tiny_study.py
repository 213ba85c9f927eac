"""A study of 2 x 2 arms and three seeds, whose stages take a second each."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np

from corpora.settings import format_assignment

WORDS = "the quick brown fox jumps over lazy dogs while seven wizards observe strange lights".split()
_MODEL = {
    "model.width": 16,
    "model.feed_forward.width": 16,
    "model.heads.count": 2,
    "model.encoder.layers": 1,
    "model.decoder.layers": 1,
    "model.encoder.attention.size": 32,
    "model.encoder.positions.count": 64,
    "data.source_length": 64,
    "data.target_length": 32,
    "data.source_multiple": 32,
    "data.target_multiple": 8,
    "run.seed": "{seed}",
    "run.device": "cpu",
    "schedule.warmup_steps": 1,
    "checkpoint.every": 1,
}
STUDY: dict[str, Any] = {
    "seeds": 3,
    "stages": {
        "tokenizer": {"command": "tokenizer train", "kind": "byte-level-bpe", "vocab_size": 300, "input": "TEXT"},
        "documents": {"command": "documents", "input": {"text": "TEXT"}, "tokenizer": "{tokenizer}/tokenizer.json"},
        "corpus": {"command": "corpus random", "documents": "{documents}", "sequence_length": 64},
        "asked": {
            "command": "documents",
            "input": {"asked": "PAIRS"},
            "format": "pairs",
            "tokenizer": "{tokenizer}/tokenizer.json",
        },
        "pairs": {
            "command": "pairs",
            "input": {"asked": "PAIRS"},
            "format": "pairs",
            "pair_id_field": "id",
            "documents": "{asked}",
        },
        "pretraining": {
            "command": "train",
            "recipe": "tiny_block",
            "set": {
                **_MODEL,
                "run.steps": 3,
                "data.corpus": "{corpus}",
                "data.objective": {"name": "span", "preset": "bart_ls"},
            },
        },
        "tuning": {
            "command": "train",
            "recipe": "tiny_block",
            "set": {
                **_MODEL,
                "run.steps": 3,
                "run.initial_model": "{pretraining}",
                "data.pairs": "{pairs}",
                "data.task": {"name": "text_to_text", "options": {"source_length": 64, "target_length": 32}},
                "evaluation": {"every": 3, "split": "test"},
            },
        },
        "predictions": {
            "command": "generate",
            "model": "{tuning}",
            "pairs": "{pairs}",
            "split": "test",
            "device": "cpu",
            "generation": {"max_tokens": 4, "beams": 1},
        },
    },
    "matrix": {
        "objective": {
            "span": {},
            "mixed": {"pretraining": {"set": {"data.objective": {"name": "span", "preset": "bart_ls_mixed"}}}},
        },
        "rate": {"slow": {}, "fast": {"tuning": {"set": {"optimizer.learning_rate": 0.03}}}},
    },
    "compare": {"baseline": "span-slow", "metrics": ["tuning.held_out_loss", "predictions.rouge:primera"]},
}


def write_study(folder: Path, **changes: Any) -> Path:
    """Write the study and its texts, with changes such as ``compare__baseline="..."``; ``None`` removes a key."""
    rng = np.random.default_rng(0)

    def text(words: int) -> str:
        return " ".join(rng.choice(WORDS, words)) + "."

    documents = [{"text": text(50)} for _ in range(24)]
    pairs: list[dict[str, Any]] = [
        {"id": str(n), "documents": [text(25)], "query": "which?", "references": [text(2)], "split": split}
        for split in ("train", "test")
        for n in range(8)
    ]
    for pair in pairs:
        pair["id"] += pair["split"]
    places = {"TEXT": folder / "text.jsonl", "PAIRS": folder / "pairs.jsonl"}
    for place, lines in zip(places.values(), (documents, pairs), strict=True):
        place.write_text("".join(json.dumps(line) + "\n" for line in lines))
    study = copy.deepcopy(STUDY)
    for dotted, value in changes.items():
        *path, last = dotted.split("__")
        table = study
        for part in path:
            table = table[part]
        table.pop(last, None)
        if value is not None:
            table[last] = value
    written = "".join(format_assignment(key, value) + "\n" for key, value in study.items())
    for word, place in places.items():
        written = written.replace(f'"{word}"', json.dumps(str(place)))
    (folder / "study.toml").write_text(written)
    return folder / "study.toml"
