"""Options of packing: the capacity of rows and its division among documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from corpora.errors import FarspanError

if TYPE_CHECKING:
    import numpy as np

    from corpora.schemas.sequences import SequenceBatch

PackingPolicy = Literal["concatenate", "whole-documents", "best-fit", "powers-of-two"]
LEAST_ROOM = 128  # positions per document; with max_documents = 0, a cluster gets another row below that


@dataclass(frozen=True, kw_only=True)
class Packing:
    """The capacity of a sequence, and the cutting of documents.

    Attributes:
        sequence_length: encoder positions of a rendered sequence, including the tokens that rendering adds.
        room_per_sequence: positions reserved in each sequence for its begin and end tokens.
        room_per_document: positions reserved for the separator of each part of a document.
        packing: ``concatenate`` cuts a document where the sequence ends and continues it in the next one.
            ``whole-documents`` never cuts: a document that does not fit starts a new sequence, and one longer than any
            sequence is left out and counted. ``best-fit`` cuts documents longer than a sequence only, and places each
            remainder and each other document in the fullest sequence that has room for it. ``powers-of-two`` cuts
            each document into sequences of its own, whose positions are powers of two up to ``sequence_length``.
        drop_ragged_tail: leave out a shard's last sequence when it is not full.
        min_document_tokens: documents with fewer tokens are left out and counted; with ``powers-of-two``, so are ends
            of documents.
    """

    sequence_length: int
    room_per_sequence: int = 2
    room_per_document: int = 1
    packing: PackingPolicy = "concatenate"
    drop_ragged_tail: bool = False
    min_document_tokens: int = 1

    def __post_init__(self) -> None:
        for name, least in (("room_per_sequence", 0), ("room_per_document", 0), ("min_document_tokens", 1)):
            if getattr(self, name) < least:
                raise FarspanError(f"{name} {getattr(self, name)}: must be at least {least}")
        if self.capacity <= self.room_per_document:
            raise FarspanError(
                f"sequence_length {self.sequence_length} leaves no room for text beside {self.room_per_sequence} "
                f"positions a sequence and {self.room_per_document} a document; raise it"
            )
        if self.drop_ragged_tail and self.packing in ("best-fit", "powers-of-two"):
            raise FarspanError(
                f"drop_ragged_tail has no effect with packing {self.packing!r}; leave out one of the two"
            )
        if self.packing == "powers-of-two" and self.sequence_length & (self.sequence_length - 1):
            raise FarspanError(
                f"sequence_length {self.sequence_length}: packing 'powers-of-two' needs a power of two, such as "
                f"{1 << (self.sequence_length.bit_length() - 1)}"
            )
        if self.packing in ("whole-documents", "powers-of-two") and self.min_document_tokens > self.room:
            raise FarspanError(
                f"min_document_tokens {self.min_document_tokens} with packing {self.packing!r} leaves out everything: "
                f"a sequence of {self.sequence_length} positions has room for {self.room} tokens of a document; lower "
                "min_document_tokens, or raise sequence_length"
            )
        if self.sequence_length > 2**31 - 1:
            raise FarspanError(f"sequence_length {self.sequence_length}: positions are 32 bit, lower it")

    @property
    def capacity(self) -> int:
        """Positions for text and separators."""
        return self.sequence_length - self.room_per_sequence

    @property
    def room(self) -> int:
        """Tokens of one document that fit into a sequence."""
        return self.capacity - self.room_per_document

    @property
    def power_sizes(self) -> list[int]:
        """Tokens in sequences of each power of two of positions, falling, down to ``min_document_tokens``."""
        powers = (1 << exponent for exponent in range(self.sequence_length.bit_length() - 1, -1, -1))
        sizes = (power - self.room_per_sequence - self.room_per_document for power in powers)
        return [size for size in sizes if size >= self.min_document_tokens]

    def padding(self, rows: SequenceBatch) -> int:
        """Number of positions that stay empty, summed over all rows."""
        if self.packing == "powers-of-two":
            return 0
        parts, tokens = rows.document_starts.lengths.sum(), rows.tokens.lengths.sum()
        return int(len(rows) * self.capacity - tokens - self.room_per_document * parts)

    def keeps(self, lengths: np.ndarray) -> np.ndarray:
        """Return ``(n,)`` bool: True for documents that are packed, given their token counts ``(n,)``."""
        if self.packing == "powers-of-two":
            return lengths >= self.power_sizes[-1]
        kept = lengths >= max(self.min_document_tokens, 1)
        return kept & (lengths <= self.room) if self.packing == "whole-documents" else kept


@dataclass(frozen=True, kw_only=True)
class RelatedRows:
    """The division of a row among a cluster's documents.

    Attributes:
        budget: ``equal`` gives each document the same number of positions (PRIMERA); ``shared`` gives positions that
            short documents leave free to longer ones, so that the longest are cut to the same length.
        order: order of documents in a row: shuffled by key, or as given.
        min_documents: rows with fewer documents are left out.
        max_documents: larger clusters become several rows with about equal numbers of documents; 0 for as many
            documents as have 128 positions each.
    """

    budget: Literal["shared", "equal"] = "shared"
    order: Literal["shuffle", "given"] = "shuffle"
    min_documents: int = 2
    max_documents: int = 0

    def __post_init__(self) -> None:
        if self.min_documents < 1:
            raise FarspanError(f"--min-documents {self.min_documents}: must be at least 1")
        if self.max_documents and self.max_documents < self.min_documents:
            raise FarspanError(
                f"--max-documents {self.max_documents}: is below --min-documents {self.min_documents}; raise it, "
                "or give 0 for as many as have room"
            )

    def largest(self, packing: Packing) -> int:
        """Return the maximum number of documents in a row."""
        most = self.max_documents or max(packing.capacity // LEAST_ROOM, self.min_documents)
        if packing.capacity < most * (packing.room_per_document + 1):
            raise FarspanError(
                f"--max-documents {most}: a row of {packing.sequence_length} positions has no room for so many "
                "documents; lower it, or raise --sequence-length"
            )
        return most
