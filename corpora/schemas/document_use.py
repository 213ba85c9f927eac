"""``DocumentUse``: the rules by which a corpus uses documents, stated in its manifest (``config.document_use``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corpora.errors import FarspanError
from corpora.storage.manifest import Manifest
from corpora.storage.strict_json import Natural, StructureError, decode


@dataclass(frozen=True, kw_only=True)
class DocumentUse:
    """The rules that a corpus builder states, by which the corpus is verified and described.

    Attributes:
        truncated: True if the end of a document may be missing.
        overlap: tokens that a part may share with the part of the same document before it.
        max_uses: maximum number of uses of a document; None for any number.
        one_shard: True if all parts of a document are in one shard.
        left_out: reason why documents may be left out; None if all are in the corpus.
    """

    truncated: bool = False
    overlap: Natural = 0
    max_uses: Natural | None = 1
    one_shard: bool = True
    left_out: str | None = None

    @classmethod
    def of(cls, manifest: Manifest) -> DocumentUse:
        """Read the rules from a corpus's manifest; older corpora, which state none, follow those of their builder.

        Raises:
            FarspanError: the rules are malformed, or missing for an unknown builder.
        """
        config = manifest.config
        if (stated := config.get("document_use")) is not None:
            try:
                return decode(cls, stated, "config.document_use")
            except StructureError as error:
                raise FarspanError(f"{error}; make the corpus again, or correct its builder") from error
        if (builder := config["builder"]) not in _BEFORE_STATEMENTS:
            raise FarspanError(
                f"config.builder {builder!r} is unknown, and config.document_use, the rules for the use of documents, "
                "is missing; make the builder write it (docs/formats.md)"
            )
        rules = {
            "truncated": config.get("drop_ragged_tail", False),
            "overlap": config.get("overlap", 0),
            "max_uses": config.get("max_uses"),
        }
        return cls(**{**rules, **_BEFORE_STATEMENTS[builder]})


# builder -> its rules, for corpora that state none; rules that depend on options are read from ``config``
_BEFORE_STATEMENTS: Mapping[str, Mapping[str, Any]] = {
    "random": {"max_uses": 1, "left_out": "too short, too long, or in a dropped tail"},
    "linked": {"one_shard": False, "left_out": "without a vector, in no linked sequence, or repeating another"},
    "long": {"truncated": True, "left_out": "beyond their source's share"},
    "clusters": {
        "truncated": True,
        "max_uses": 1,
        "left_out": "in no cluster, in a small one, or with a first sentence longer than their share of the row",
    },
}
