"""SentencePiece models, and reading of the protocol buffers that they are, without a schema."""

from __future__ import annotations

import hashlib
import itertools
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from corpora.tokenizers.decoding import PieceTables
from corpora.tokenizers.huggingface import MASK_NAMES, check_ids, owned_tokens, write_files

FILE_NAME = "tokenizer.model"
_SPACE = "\u2581"
_STAND_INS = tuple(map(chr, range(0xFDD0, 0xFDF0)))  # code points that are no characters, of three bytes like _SPACE
_SLICE = 1 << 20  # bytes
_WORD = re.compile(rb" (?=[0-9A-Za-z])")


class SentencePieceTokenizer:
    """Tokenizer from a SentencePiece model. ``corpora.tokenizers.protocol.Tokenizer`` documents the members.

    Ids are those of the library, with one exception: it takes U+2581, its sign for a space, in a text for a space. If
    the model keeps every other text exactly, U+2581 becomes its three bytes, which the library decodes as such.
    """

    engine = "sentencepiece"

    def __init__(self, data: bytes) -> None:
        import sentencepiece  # loaded here because most artefacts have a tokenizer.json

        self._data = data
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(data)
            description = _parse(data)
            self.fingerprint = _fingerprint(*description)
            self._inserted = _count_inserted_bytes(*description)
            self.vocab_size = self._processor.GetPieceSize()
            pieces = [self._processor.IdToPiece(i) for i in range(self.vocab_size)]
        except (RuntimeError, ValueError, LookupError, struct.error) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise FarspanError(f"not a SentencePiece model, or a damaged one ({reason}); copy it again") from None
        processor, ids = self._processor, range(self.vocab_size)
        # (character, ids of its bytes) that stand in for U+2581, and the ids of its own bytes; none for a lossy model
        exact = self._inserted is not None and description[1][2][35]
        used = set("".join(pieces))
        self._stand_ins = [(each, self._byte_ids(each)) for each in _STAND_INS if exact and each not in used]
        self._space_ids = self._byte_ids(_SPACE)
        controls = {pieces[i]: i for i in ids if processor.IsControl(i)}  # never part of a text, unlike user symbols
        numbers = {
            **{"<pad>": processor.pad_id(), "<bos>": processor.bos_id()},
            **{"<eos>": processor.eos_id(), "<unk>": processor.unk_id()},
            "<mask>": next((controls[name] for name in MASK_NAMES if name in controls), -1),
        }
        self.owned_tokens = owned_tokens({role: i for role, i in numbers.items() if i >= 0}, controls)
        # The library decodes controls, bytes and unknowns by rules of its own.
        self._plain = np.array(
            [not (processor.IsControl(i) or processor.IsByte(i) or processor.IsUnknown(i)) for i in ids]
        )
        # (vocab,) bytes of a piece in the normalised text; -1 where it varies.
        self._normalised_lengths = np.array(
            [1 if processor.IsByte(i) else -1 if processor.IsUnknown(i) else len(pieces[i].encode()) for i in ids]
        )
        # True if decoding keeps a leading space. Tested with a known piece, because the library strips no unknown one.
        spaced = [i for i in np.flatnonzero(self._plain).tolist() if pieces[i].startswith(_SPACE)]
        keeps_space = processor.Decode(spaced[:1]).startswith(" ")
        first = [piece if keeps_space else piece.removeprefix(_SPACE) for piece in pieces]
        self._tables = PieceTables.build(
            [piece.replace(_SPACE, " ") for piece in first],
            [piece.replace(_SPACE, " ") for piece in pieces],
            [-1] * self.vocab_size,
            (),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._data,)

    def _byte_ids(self, character: str) -> np.ndarray:
        return np.array([self._processor.PieceToId(f"<0x{byte:02X}>") for byte in character.encode()], np.int32)

    def encode(self, texts: Sequence[str]) -> Ragged:
        stand_ins = [self._stand_in(text) if _SPACE in text else None for text in texts]
        texts = [text.replace(_SPACE, it[0]) if it else text for text, it in zip(texts, stand_ins, strict=True)]
        # Words cannot be cached: the library adds scores in single precision along the whole text, and where pieces
        # tie, as in "www", what stands before decides. Word by word, 16 % of texts of 10,000 characters had other ids.
        rows = self._processor.EncodeAsNumpy(texts, num_threads=1)
        rows = [self._with_space_sign(row, it[1]) if it else row for row, it in zip(rows, stand_ins, strict=True)]
        return Ragged.from_rows(rows, np.int32)

    def _with_space_sign(self, row: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Replace each sequence ``ids`` of three bytes by the bytes of U+2581."""
        row = row.copy()
        starts = np.flatnonzero((row[:-2] == ids[0]) & (row[1:-1] == ids[1]) & (row[2:] == ids[2]))
        row[starts[:, None] + np.arange(3)] = self._space_ids
        return row

    def _stand_in(self, text: str) -> tuple[str, np.ndarray] | None:
        return next((each for each in self._stand_ins if each[0] not in text), None)

    def encode_with_starts(self, texts: Sequence[str]) -> tuple[Ragged, Ragged]:
        ids = self.encode(texts)
        return ids, Ragged.from_rows([self._starts(text, ids[row]) for row, text in enumerate(texts)], np.int64)

    def _starts(self, text: str, ids: np.ndarray) -> np.ndarray:
        """Return the first byte of each piece in the text, ``(n,)`` int64: the origin of its first normalised byte."""
        lengths = self._normalised_lengths[ids]
        origins = self._origins(text.encode())
        if (lengths < 0).any() or lengths.sum() != len(origins):
            mapping = self._processor.EncodeAsOffsetMapping(text, return_bytes=True)
            return np.array([start for start, _ in mapping["offsets"]], np.int64)
        return origins[np.cumsum(lengths) - lengths]

    def _origins(self, data: bytes) -> np.ndarray:
        """Return the position in ``data`` that each byte of the normalised text comes from, int64.

        The library returns one Python integer per byte, so a long text is processed in slices, cut before words. An
        "x" on either side of a cut prevents white space there from being treated as the text's beginning or end.
        """
        if self._inserted is not None:
            codes = np.frombuffer(data, np.uint8)
            sizes = np.where(codes == ord(" "), len(_SPACE.encode()), 1)
            sizes[:1] += self._inserted
            characters = np.where((codes & 0xC0) == 0x80, 0, np.arange(len(data)))  # continuation bytes come from ...
            return np.repeat(np.maximum.accumulate(characters), sizes)  # ... the character that they belong to
        cuts = [0]
        while word := _WORD.search(data, cuts[-1] + _SLICE):
            cuts.append(word.start() + 1)
        cuts.append(len(data))
        guard = len(self._processor.Normalize(b"x"))
        slices, origins = [], []
        for start, stop in itertools.pairwise(cuts):
            before, after = b"x" * (start > 0), b"x" * (stop < len(data))
            normalised, places = self._processor.Normalize(before + data[start:stop] + after, with_offsets=True)
            kept = slice(guard if start else 0, len(normalised) - len(after))
            slices.append(normalised[kept])
            origins.append(np.array(places[kept], np.int64) + (start - len(before)))
        if len(slices) > 1 and b"".join(slices) != self._processor.Normalize(data):
            return np.array(self._processor.Normalize(data, with_offsets=True)[1][:-1], np.int64)
        return np.concatenate(origins)

    def decode(self, ids: np.ndarray | Sequence[int]) -> str:
        return self.decode_with_offsets(ids)[0]

    def decode_with_offsets(self, ids: np.ndarray | Sequence[int]) -> tuple[str, np.ndarray]:
        ids = check_ids(ids, self.vocab_size)
        if len(ids) and self._plain[ids].all() and self._tables.first[ids[0]]:
            return self._tables.decode(ids)
        mapping = self._processor.Decode(ids.tolist(), return_type="offset_mapping")
        return mapping["text"], np.array([start for start, _ in mapping["offsets"]], np.int64)

    def serialized(self) -> dict[str, bytes]:
        return {FILE_NAME: self._data}

    def save(self, folder: str) -> None:
        write_files(folder, self.serialized())


# Fields of sentencepiece_model.proto that affect text -> id, with their defaults:
# trainer: model_type, treat_whitespace_as_suffix, byte_fallback.
_TRAINER: dict[int, bytes | int] = {3: 1, 24: 0, 35: 0}
# normaliser: precompiled_charsmap, add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces.
_NORMALIZER: dict[int, bytes | int] = {2: b"", 3: 1, 4: 1, 5: 1}


_USER_DEFINED = 4  # kind of a piece that the normaliser leaves as it is
_Piece = dict[int, bytes | int]


def _parse(data: bytes) -> tuple[list[_Piece], dict[int, dict[int, bytes | int]]]:
    """Return the pieces (1 text, 2 score, 3 kind; 1 = normal), and the rules of trainer (2) and normaliser (3)."""
    pieces: list[_Piece] = []
    rules: dict[int, dict[int, bytes | int]] = {2: dict(_TRAINER), 3: dict(_NORMALIZER)}
    for field, value in fields(data):
        if field == 1:
            piece: _Piece = {2: b"\0\0\0\0", 3: 1}
            pieces.append(piece | dict(fields(message(value))))
        elif field in rules:
            rules[field] |= {key: item for key, item in fields(message(value)) if key in rules[field]}
    return pieces, rules


def _fingerprint(pieces: Sequence[_Piece], rules: dict[int, dict[int, bytes | int]]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(repr((piece[1], piece[2], piece[3])).encode())
    digest.update(repr(sorted((field, sorted(values.items())) for field, values in rules.items())).encode())
    return digest.hexdigest()


def _count_inserted_bytes(pieces: Sequence[_Piece], rules: dict[int, dict[int, bytes | int]]) -> int | None:
    """Return the length of the prefix of a normaliser that otherwise only escapes spaces; None for other ones."""
    charsmap, prefix, removes, escapes = (rules[3][field] for field in _NORMALIZER)
    if charsmap or removes or not escapes or rules[2][24] or any(piece[3] == _USER_DEFINED for piece in pieces):
        return None
    return len(_SPACE.encode()) if prefix else 0


def fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield (number, value) of each field of a protocol buffer; fixed-width numbers as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                value, at = _varint(data, at)
                yield key >> 3, value
                continue
            case 1:
                size = 8
            case 5:
                size = 4
            case 2:
                size, at = _varint(data, at)
            case kind:
                raise ValueError(f"field {key >> 3} has wire type {kind}")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def message(value: bytes | int) -> bytes:
    """Return a field's value if it is a message or text."""
    if isinstance(value, int):
        raise ValueError("a number where a message is expected")
    return value
