"""Encoding of texts that a task inserts between, or spells anew among, texts that are already encoded."""

from __future__ import annotations

from collections.abc import Sequence

from corpora.storage.ragged import Ragged
from corpora.tokenizers.protocol import Tokenizer

_WORD = "a"


def encode_inserted(tokenizer: Tokenizer, text: str, first: bool = False) -> tuple[int, ...]:
    """Encode ``text`` so that its ids between those of two words are the ids of the whole text, if that is possible.

    Byte-level BPE may have one token for two line ends, but encodes two before a word; SentencePiece puts a space
    before each text that it encodes. So the text is encoded between two words, and the ids between theirs are taken. If
    byte-level BPE joins the text's last space with the next word, it is encoded after a word only.
    """

    def ids(whole: str) -> list[int]:
        return [int(token) for token in tokenizer.encode([whole]).values]

    word = ids(_WORD)
    left, before = ("", []) if first else (_WORD, word)
    between = ids(left + text + _WORD)
    stop = len(between) - len(word)
    if stop >= len(before) and between[: len(before)] == before and between[stop:] == word:
        return tuple(between[len(before) : stop])
    after = ids(left + text)
    return tuple(after[len(before) :] if after[: len(before)] == before else ids(text))


def encode_after_space(tokenizer: Tokenizer, texts: Sequence[str]) -> Ragged:
    """Encode n texts as they are spelled inside a text: with a space before them, unless they begin with one.

    A tokenizer that spells a word alike at the beginning of a text and inside one, such as SentencePiece, puts a space
    before each text itself.
    """
    if _spells_alike(tokenizer):
        return tokenizer.encode(texts)
    return tokenizer.encode([text if text[:1].isspace() else f" {text}" for text in texts])


def spell_after_space(tokenizer: Tokenizer, rows: Ragged) -> Ragged:
    """Encode n encoded texts again as ``encode_after_space`` does."""
    if _spells_alike(tokenizer):
        return rows
    return encode_after_space(tokenizer, [tokenizer.decode(rows[number]) for number in range(len(rows))])


def _spells_alike(tokenizer: Tokenizer) -> bool:
    first, both = ([int(token) for token in tokenizer.encode([text]).values] for text in (_WORD, f"{_WORD} {_WORD}"))
    return both == first + first
