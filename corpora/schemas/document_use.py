"""The use that a corpus makes of its documents, as its builder states it in the manifest (``config.document_use``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corpora.errors import FarspanError
from corpora.storage.manifest import Manifest
from corpora.storage.strict_json import Natural, StructureError, decode


@dataclass(frozen=True, kw_only=True)
class DocumentUse:
    """The builder's statement, by which a corpus is verified and described.

    Attributes:
        truncated: the end of a document may be missing.
        overlap: a part that is not a document's first may begin that many tokens before the end of the part before it.
        max_uses: times that a document may be used; None for any number.
        one_shard: all parts of a document lie in one shard.
        left_out: why documents may be left out of the corpus; None if all of them are in it.
    """

    truncated: bool = False
    overlap: Natural = 0
    max_uses: Natural | None = 1
    one_shard: bool = True
    left_out: str | None = None

    @classmethod
    def of(cls, manifest: Manifest) -> DocumentUse:
        """The statement in a corpus's manifest; for corpora made before there was one, the rules of their builder.

        Raises:
            FarspanError: the statement is malformed, or missing where the builder is unknown.
        """
        config = manifest.config
        if (stated := config.get("document_use")) is not None:
            try:
                return decode(cls, stated, "config.document_use")
            except StructureError as error:
                raise FarspanError(f"{error}; make the corpus again, or correct its builder") from error
        if (builder := config["builder"]) not in _BEFORE_STATEMENTS:
            raise FarspanError(
                f"config.builder {builder!r} is unknown, and config.document_use, which says how the corpus uses its "
                "documents, is missing; have the builder write it (docs/formats.md)"
            )
        rules = {
            "truncated": config.get("drop_ragged_tail", False),
            "overlap": config.get("overlap", 0),
            "max_uses": config.get("max_uses"),
        }
        return cls(**{**rules, **_BEFORE_STATEMENTS[builder]})


# builder -> its rules, for corpora without a statement; what depends on options is read from ``config``
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
