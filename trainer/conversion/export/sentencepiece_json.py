"""Conversion of SentencePiece models to tokenizer.json, which transformers loads without a model-specific class."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from corpora.tokenizers.sentencepiece import fields, message

_SPACE = "\u2581"
_TOGETHER = 64  # pieces in each text that the two libraries are compared on

# Numbers of fields and values in sentencepiece_model.proto.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_TEXT, _SCORE, _KIND = 1, 2, 3
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
_MODEL_TYPE, _SPLIT_BY_WHITESPACE, _SPACE_BEHIND, _BYTE_FALLBACK, _UNKNOWN_ID = 3, 22, 24, 35, 40
_UNIGRAM, _BPE = 1, 2
_CHARACTER_MAP, _DUMMY_PREFIX, _REMOVE_SPACES, _ESCAPE_SPACES = 2, 3, 4, 5


@dataclass(frozen=True)
class _Piece:
    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class _Spec:
    """The parts of a SentencePiece model that determine ids; two of them are keyed by field number."""

    pieces: list[_Piece]
    trainer: dict[int, Any]
    normalizer: dict[int, Any]


def convert_sentencepiece(data: bytes, special: Collection[int]) -> tokenizers.Tokenizer | None:
    """Convert a SentencePiece model to a tokenizer of the tokenizers library with the same ids for the same texts.

    Texts with U+2581 or the spelling of a special or a user-defined symbol may differ. None for a model that the
    library cannot express (words, characters, or white space as a suffix), or if the two libraries disagree on texts
    made of all pieces.
    """
    spec = _parse(data)
    if (
        spec.trainer[_MODEL_TYPE] not in (_UNIGRAM, _BPE)
        or spec.trainer[_SPACE_BEHIND]
        or not spec.normalizer[_ESCAPE_SPACES]
    ):
        return None
    made = tokenizers.Tokenizer(_model(spec))
    made.normalizer = normalizers.Sequence(_normalizers(spec))
    prefix = bool(spec.normalizer[_DUMMY_PREFIX])
    split = bool(spec.trainer[_SPLIT_BY_WHITESPACE])
    made.pre_tokenizer = pre_tokenizers.Metaspace(_SPACE, "always" if prefix else "never", split=split)
    last = [decoders.Strip(" ", 1, 0)] if prefix else []
    made.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *last])
    for i, piece in enumerate(spec.pieces):
        if i in special or piece.kind in (_CONTROL, _USER_DEFINED):
            is_special = i in special or piece.kind == _CONTROL
            made.add_tokens([AddedToken(piece.text, normalized=False, special=is_special)])
    return made if _agree(made, data, spec) else None


def _parse(data: bytes) -> _Spec:
    # Fields that are left out have these defaults.
    trainer = {_MODEL_TYPE: _UNIGRAM, _SPLIT_BY_WHITESPACE: 1, _SPACE_BEHIND: 0, _BYTE_FALLBACK: 0, _UNKNOWN_ID: 0}
    normalizer: dict[int, Any] = {_CHARACTER_MAP: b"", _DUMMY_PREFIX: 1, _REMOVE_SPACES: 1, _ESCAPE_SPACES: 1}
    pieces = []
    for number, value in fields(data):
        if number == _PIECES:
            piece: dict[int, Any] = {_SCORE: b"\0\0\0\0", _KIND: _NORMAL, **dict(fields(message(value)))}
            pieces.append(_Piece(piece[_TEXT].decode(), struct.unpack("<f", piece[_SCORE])[0], piece[_KIND]))
        elif number == _TRAINER:
            trainer |= {key: item for key, item in fields(message(value)) if key in trainer and isinstance(item, int)}
        elif number == _NORMALIZER:
            normalizer |= {key: item for key, item in fields(message(value)) if key in normalizer}
    return _Spec(pieces, trainer, normalizer)


def _model(spec: _Spec) -> Any:
    unknown, fallback = spec.trainer[_UNKNOWN_ID], bool(spec.trainer[_BYTE_FALLBACK])
    if spec.trainer[_MODEL_TYPE] == _UNIGRAM:
        return models.Unigram([(piece.text, piece.score) for piece in spec.pieces], unknown, fallback)
    numbers = {piece.text: i for i, piece in enumerate(spec.pieces)}
    text = spec.pieces[unknown].text
    return models.BPE(numbers, list(_merges(spec)), unk_token=text, fuse_unk=True, byte_fallback=fallback)


def _merges(spec: _Spec) -> Iterator[tuple[str, str]]:
    """Yield pairs of pieces that form a piece, by descending score, which is the order of SentencePiece's merges."""
    scores = {piece.text: piece.score for piece in spec.pieces if piece.kind == _NORMAL}
    for text in sorted(scores, key=lambda text: -scores[text]):
        for cut in range(1, len(text)):
            if text[:cut] in scores and text[cut:] in scores:
                yield text[:cut], text[cut:]


def _normalizers(spec: _Spec) -> list[Any]:
    mapping = spec.normalizer[_CHARACTER_MAP]
    spaces = [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")] if spec.normalizer[_REMOVE_SPACES] else []
    return [*([normalizers.Precompiled(mapping)] if mapping else []), *spaces]


def _agree(made: tokenizers.Tokenizer, data: bytes, spec: _Spec) -> bool:
    """Return True if both libraries give the same ids for texts made of all pieces, with and without spaces."""
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(data)
    words = [piece.text.replace(_SPACE, " ") for piece in spec.pieces if piece.kind == _NORMAL]
    groups = [words[first : first + _TOGETHER] for first in range(0, len(words), _TOGETHER)]
    texts = [between.join(group) for group in groups for between in ("", " ")]
    found = made.encode_batch(texts, add_special_tokens=False)
    return all(encoding.ids == ids for encoding, ids in zip(found, processor.Encode(texts), strict=True))
