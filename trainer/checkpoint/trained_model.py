"""The model of a finished or interrupted run, read from its checkpoint: configuration, vocabulary, weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, TypedDict

from corpora.errors import FarspanError
from corpora.settings import parse
from corpora.storage.strict_json import StructureError, decode
from objectives.api.examples import Examples
from objectives.api.special_tokens import BEGIN, END, SpecialTokens
from trainer.checkpoint.files import MANIFEST, MODEL, check_file, check_nothing_else, checkpoints_in, read_manifest
from trainer.checkpoint.run_files import DamagedError
from trainer.checkpoint.state import Tensors, load_tensors
from trainer.model.config import ModelConfig, as_table
from trainer.model.masked_lm import GENERATOR


class _Vocabulary(TypedDict):
    tokenizer_fingerprint: str
    special_tokens: Mapping[str, Annotated[int, range(2**31)]]
    frame: tuple[str, ...]
    size: Annotated[int, range(1, 2**31)]


class _GeneratorVocabulary(_Vocabulary):
    model: Mapping[str, Any]


class _CheckpointVocabulary(_Vocabulary, total=False):
    generator: _GeneratorVocabulary


@dataclass(frozen=True)
class TrainedModel:
    """A checkpoint's description of its model; the weights are not read yet."""

    path: Path  # of the checkpoint
    config: ModelConfig
    tokenizer_fingerprint: str
    special: SpecialTokens  # with <bos> and <eos> only if they framed the texts in training
    weights_files: Mapping[str, Mapping[str, Any]]  # name -> bytes and sha256
    generator: TrainedModel | None = None  # trained beside it, in joint training
    is_generator: bool = False  # True for such a generator, whose weights are stored with those of the other model

    @property
    def weights_sha256(self) -> str:
        """Hash of the files' hashes, in the order of their names."""
        digests = [self.weights_files[name]["sha256"] for name in sorted(self.weights_files)]
        return sha256("".join(digests).encode()).hexdigest()

    def weights(self) -> Tensors:
        """Read the whole state dictionary on the CPU, without that of a generator; any number of processes may have
        written it.
        """
        try:
            check_nothing_else(self.path, MODEL, self.weights_files)
            for name, facts in self.weights_files.items():
                check_file(self.path / name, facts)
        except DamagedError as error:
            raise FarspanError(f"{self.path} is damaged ({error}); name another checkpoint of its run") from None
        stored = load_tensors(self.path / MODEL)
        prefix = GENERATOR if self.is_generator else ""
        return {
            name.removeprefix(prefix): tensor
            for name, tensor in stored.items()
            if name.startswith(GENERATOR) == self.is_generator
        }


def vocabulary_of(tokenizer_fingerprint: str, special: SpecialTokens, shown: Examples) -> dict[str, Any]:
    """A checkpoint's record of a model's token ids: tokenizer, special tokens, and those that frame a text."""
    text = shown.source_ids[0, : shown.source_lengths[0]]
    edges = {BEGIN: text[:1], END: text[-1:]}
    return {
        "tokenizer_fingerprint": tokenizer_fingerprint,
        "special_tokens": dict(special.ids),
        "frame": [name for name, edge in edges.items() if special.ids.get(name) in edge],
        "size": special.vocab_size,
    }


def find_trained(path: Path) -> TrainedModel:
    """Find the model of a checkpoint, or of the newest readable checkpoint of a run."""
    faults = []
    for checkpoint in checkpoints_in(path):
        try:
            manifest = read_manifest(checkpoint)
        except DamagedError as error:
            faults.append(f"{checkpoint.name}: {error}")
            continue
        vocabulary = manifest["vocabulary"]
        try:
            decode(_CheckpointVocabulary, vocabulary, "vocabulary")
        except StructureError as error:
            faults.append(f"{checkpoint.name}: {MANIFEST}: {error}")
            continue
        model = _describe(checkpoint, manifest, vocabulary, "identity.model", manifest["identity"].get("model"))
        if generator := vocabulary.get("generator"):
            beside = _describe(checkpoint, manifest, generator, "vocabulary.generator.model", generator["model"])
            model = replace(model, generator=replace(beside, is_generator=True))
        return model
    raise FarspanError(f"{path}: no readable checkpoint ({'; '.join(faults) or 'none at all'}); name another run")


def _describe(
    checkpoint: Path, manifest: Mapping[str, Any], vocabulary: Mapping[str, Any], section: str, config: Any
) -> TrainedModel:
    """The model of ``config``, from ``section`` of the manifest, with the ids of ``vocabulary``."""
    unseen = {BEGIN, END} - set(vocabulary["frame"])
    known = {name: number for name, number in vocabulary["special_tokens"].items() if name not in unseen}
    return TrainedModel(
        checkpoint,
        parse(ModelConfig, as_table(config), str(checkpoint / MANIFEST), section),
        vocabulary["tokenizer_fingerprint"],
        SpecialTokens(known, vocabulary["size"]),
        {name: facts for name, facts in manifest["files"].items() if name.startswith(f"{MODEL}/")},
    )
