"""``Layout``: the special tokens around the text of a rendered row and at document boundaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from corpora.errors import FarspanError
from corpora.printing import counted
from objectives.api.protocol import CorpusFacts
from objectives.api.special_tokens import BEGIN, END

Parts = TypeVar("Parts", int, np.ndarray)


@dataclass(frozen=True)
class Layout:
    """Names of the special tokens around text; None for no token.

    Attributes:
        begin: first token of source and target.
        end: last token of source and target.
        before: token before every document of a source.
        between: token between two documents of a source.
        after: token after every document of a source.
    """

    begin: str | None = BEGIN
    end: str | None = END
    before: str | None = None
    between: str | None = None
    after: str | None = None

    @property
    def names(self) -> list[str]:
        """Special tokens that the table must contain, each once."""
        return list(dict.fromkeys(filter(None, (self.begin, self.end, self.before, self.between, self.after))))

    @property
    def ends(self) -> int:
        """Number of positions of begin and end together."""
        return (self.begin is not None) + (self.end is not None)

    def around(self, parts: Parts) -> Parts:
        """Count the positions that the layout adds to a source of ``parts`` documents, a scalar or ``(n,)``."""
        edges = (self.before is not None) + (self.after is not None)
        inner = int(self.between is not None)
        return self.ends + edges * parts + inner * (parts - (parts > 0))

    def check(self, objective: str, facts: CorpusFacts) -> None:
        """Check that the rows of a corpus have room for this layout."""
        edges = sum(token is not None for token in (self.before, self.between, self.after))
        if self.ends <= facts.room_per_sequence and edges <= facts.room_per_document:
            return
        if facts.max_tokens + self.around(facts.max_documents) <= facts.sequence_length:
            return
        # Suggest at least the room that the corpus has, so that it still suits the other objectives.
        sequence, document = max(self.ends, facts.room_per_sequence), max(edges, facts.room_per_document)
        ends = counted(self.ends, "position")
        raise FarspanError(
            f"{objective}: puts {ends} around a sequence and {edges} around a document; the corpus was built with "
            f"room for {facts.room_per_sequence} and {facts.room_per_document} in {facts.sequence_length} positions; "
            f"build it with --room-per-sequence {sequence} --room-per-document {document}"
        )
