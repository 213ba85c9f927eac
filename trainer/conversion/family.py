"""The interface of the model families of Hugging Face in ``families``, and the selection of one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.resources import files
from pkgutil import iter_modules
from typing import Any, Protocol, cast

from torch import Tensor

from corpora.errors import FarspanError
from trainer.conversion import families
from trainer.conversion.adapt import differences
from trainer.conversion.names import Tensors
from trainer.model.config import ModelConfig


class Family(Protocol):
    """Interface of a family's module.

    Attributes:
        MODEL_TYPES: values of ``model_type`` in ``config.json``, each of one family.
        IGNORED: patterns of stored names without information.
        PATTERNS: names of the attention patterns that are exported to this family, each to one; may be empty. With a
            pattern, the module is an ``ExportableFamily``.

    A module may also be a ``NestedFamily``. One with ``ENCODERS``, names of patterns, is one that encoders with these
    patterns are exported to, each to one.
    """

    MODEL_TYPES: tuple[str, ...]
    IGNORED: tuple[str, ...]
    PATTERNS: tuple[str, ...]

    def read_config(self, values: Mapping[str, Any]) -> ModelConfig:
        """Convert a complete ``config.json`` to farspan's configuration."""

    def name_map(self, config: ModelConfig) -> dict[str, Tensors]:
        """Map every parameter name of farspan to the stored tensors."""


class ExportableFamily(Family, Protocol):
    """A family that models can be exported to."""

    def write_config(self, config: ModelConfig, vocab_size: int, special: Mapping[str, int]) -> dict[str, Any]:
        """Make a ``config.json``; the caller reads it back to detect fields that it cannot express."""


class NestedFamily(Family, Protocol):
    """A family whose configurations are nested, and whose models may have parts that farspan's do not have.

    Attributes:
        RENAMED: regular expressions and their replacements, which turn the spellings of stored names into those of
            ``name_map``.
        CARRIED: patterns of stored names that conversions pass on unchanged, such as a vision tower's.
    """

    RENAMED: tuple[tuple[str, str], ...]
    CARRIED: tuple[str, ...]

    def complete(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Add the fields of the top level that the library keeps in nested configurations."""

    def carried_fields(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of ``config.json`` that describe the carried tensors, nested as there."""

    def stub(self, config: ModelConfig) -> dict[str, Tensor]:
        """Make the tensors of ``CARRIED`` that an exported model without these parts needs."""


def nested(family: Family) -> NestedFamily | None:
    """Return the family if it is a ``NestedFamily``."""
    return cast(NestedFamily, family) if hasattr(family, "CARRIED") else None


FAMILIES = tuple(
    cast(Family, import_module(f"{families.__name__}.{module.name}")) for module in iter_modules(families.__path__)
)
_REFUSED = dict.fromkeys(
    ("t5gemma", "gemma2"),
    "caps attention scores and logits (attn_logit_softcapping), which the fast kernels do not support; "
    "convert a T5Gemma 2 or Gemma 3",
) | {
    "modernbert-decoder": "has a prediction head and an output bias, and another token table than Ettin's encoders, "
    "for which an encoder-decoder here has no place; convert Ettin's encoder or a Gemma 3",
}


def family_of(model_type: Any) -> Family:
    """Return the family of a ``model_type``, which may be any value of a JSON file."""
    if isinstance(model_type, str) and model_type in _REFUSED:
        raise FarspanError(f"config.json: {model_type} {_REFUSED[model_type]}")
    for family in FAMILIES:
        if model_type in family.MODEL_TYPES:
            return family
    known = ", ".join(kind for family in FAMILIES for kind in family.MODEL_TYPES)
    raise FarspanError(f"config.json: model_type is {model_type!r}; known are {known}; convert one of these")


def exportable_family(config: ModelConfig) -> ExportableFamily:
    """Return the family whose encoder has the pattern of ``config``."""
    pattern, patterns = config.encoder.attention.pattern, "PATTERNS" if config.decoder else "ENCODERS"
    families = {name: family for family in FAMILIES for name in getattr(family, patterns, ())}
    if pattern not in families:
        what = "an encoder without a decoder" if config.decoder is None else "an encoder-decoder"
        raise FarspanError(
            f"the model is {what} with the attention pattern {pattern!r}; such a model can be exported to Hugging Face "
            f"with one of the patterns {', '.join(families)}; keep it in farspan's format"
        )
    return cast(ExportableFamily, families[pattern])


def config_class(model_type: str) -> Any:
    """Return the configuration class of a ``model_type``; that of exported code is farspan's own copy of it."""
    from transformers import CONFIG_MAPPING  # slow to import

    from trainer.conversion.export.modeling_bart_ls import BartLSConfig

    return BartLSConfig if model_type == BartLSConfig.model_type else CONFIG_MAPPING[model_type]


def list_exported_code(values: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the modelling files that the ``auto_map`` of a ``config.json`` names; none for classes of transformers."""
    modules = {name.partition(".")[0] for name in values.get("auto_map", {}).values()}
    folder = files("trainer.conversion.export")
    return {f"{module}.py": folder.joinpath(f"{module}.py").read_bytes() for module in sorted(modules)}


def export_config(
    family: ExportableFamily, config: ModelConfig, vocab_size: int, special: Mapping[str, int]
) -> dict[str, Any]:
    """Make a complete ``config.json`` that is read back as the same model."""
    values = family.write_config(config, vocab_size, special)
    architecture, kind = values["architectures"][0], config_class(values["model_type"])
    try:
        # T5's configuration class stores tying in another field, and always reports tied tables
        whole = kind(**values).to_dict() | {"tie_word_embeddings": values["tie_word_embeddings"]}
        unequal = differences(config, family.read_config(whole))
    except FarspanError as error:
        raise FarspanError(f"the model cannot be written as {architecture}: {error}") from None
    if unequal:
        lines = [f"  model.{field}: farspan {ours!r}, Hugging Face {theirs!r}" for field, ours, theirs in unequal]
        raise FarspanError(
            f"the model cannot be written as {architecture} of Hugging Face:\n"
            + "\n".join(lines)
            + "\nchange these fields with "
            "--set, or keep the model in farspan's format"
        )
    return whole
