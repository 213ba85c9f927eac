"""``DocumentUse``: the rules by which a corpus uses documents, stated in its manifest (``config.document_use``)."""

from __future__ import annotations

from dataclasses import dataclass

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
        """Read the rules from a corpus's manifest."""
        config = manifest.config
        if "document_use" not in config:
            raise FarspanError(
                f"config.document_use, the rules by which builder {config['builder']!r} uses documents, is missing; "
                "make the builder write it (docs/formats.md)"
            )
        try:
            return decode(cls, config["document_use"], "config.document_use")
        except StructureError as error:
            raise FarspanError(f"{error}; make the corpus again, or correct its builder") from error
