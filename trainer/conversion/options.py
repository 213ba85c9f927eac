"""Options of a conversion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from corpora.options import Flag


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What becomes of a model.

    Attributes:
        recipe: recipe whose model it is made into, a name or a TOML file (default: it stays as it is).
        assignments: override a key of the recipe, or without one of the model (model.encoder.positions.count=4096).
        masks: mask set whose special tokens the model must know.
        vocab_size: or the number of rows of the token table.
        tokenizer: the model's tokenizer, where its folder holds none.
        to: format to write.
    """

    recipe: Annotated[str | None, Flag(metavar="NAME")] = None
    assignments: Annotated[tuple[str, ...], Flag(name="set", metavar="KEY=VALUE")] = ()
    masks: Annotated[str | None, Flag(metavar="DIR")] = None
    vocab_size: Annotated[int | None, Flag(metavar="N")] = None
    tokenizer: Annotated[str | None, Flag(metavar="PATH")] = None
    to: Literal["farspan", "huggingface"] = "farspan"
