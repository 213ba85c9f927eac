"""Ids of texts that a task inserts among texts that are encoded already."""

from __future__ import annotations

from corpora.tokenizers.protocol import Tokenizer

_WORD = "a"


def encode_inserted(tokenizer: Tokenizer, text: str, first: bool = False) -> tuple[int, ...]:
    """Encode ``text`` such that, between the ids of two words, it gives the ids of the whole where that is possible.

    Byte-level BPE may have one token for two line ends, but encodes two before a word; SentencePiece puts a space of
    its own before each text that it encodes. So the ids between those of two words are taken, if they are there. They
    are not where byte-level BPE joins the text's last space with the word behind it; then only the left word counts.

    Args:
        first: nothing precedes the text.
    """

    def ids(whole: str) -> list[int]:
        return [int(token) for token in tokenizer.encode([whole]).values]

    word = ids(_WORD)
    left, before = ("", []) if first else (_WORD, word)
    between = ids(left + text + _WORD)
    stop = len(between) - len(word)
    if stop >= len(before) and between[: len(before)] == before and between[stop:] == word:
        return tuple(between[len(before) : stop])
    behind = ids(left + text)
    return tuple(behind[len(before) :] if behind[: len(before)] == before else ids(text))
