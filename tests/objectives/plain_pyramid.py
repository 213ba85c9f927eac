"""The entity pyramid in plain Python, one row at a time and one rule after the other, on top of ``rouge_score``."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from corpora.keyed import id_keys
from corpora.schemas.sequences import SequenceBatch
from objectives.api.masks import IN_SOURCE, IN_TARGET, VISIBLE
from tests.objectives.rouge.plain_rouge import against_the_rest, of_clusters

Span = tuple[int, int, int, float, int, str]  # start, length, flags, score, rank, label
Find = Callable[[Sequence[str]], list[np.ndarray]]


def plain_row(
    batch: SequenceBatch, row: int, key: bytes, o: dict[str, Any], decode: Callable, find: Find
) -> list[Span]:
    """Spans of one row under the options ``o`` of ``EntityPyramid``."""
    tokens, size = batch.tokens[row], len(batch.tokens[row])
    borders = [*batch.document_starts[row].tolist(), size]
    cuts = sorted({*borders, *batch.sentence_starts[row].tolist()})
    spans = [(a, b) for a, b in pairwise(cuts) if a < b]
    whole, places = decode(tokens)
    places = [*places, len(whole)]
    documents = [[i for i, span in enumerate(spans) if a <= span[0] < b] for a, b in pairwise(borders)]
    texts = [whole[places[a] : places[b]] for a, b in spans]
    if len(documents) > 1:
        scores = of_clusters([[texts[i] for i in d] for d in documents], o["stem"])
    else:
        scores = against_the_rest(texts, o["stem"])
    scores = [0.0 if len(text.split()) < o["min_words"] else score for text, score in zip(texts, scores, strict=True)]

    # Who is mentioned where, and in how many documents.
    mentioned: dict[str, list[int]] = {}
    holding: dict[str, set[int]] = {}
    for number, document in enumerate(documents if len(documents) > 1 else []):
        begin = places[spans[document[0]][0]]
        text = "".join(texts[i] for i in document)
        for first, stop in find([text])[0].tolist():
            form = plain_form(text[first:stop])
            sentence = max(i for i in document if places[spans[i][0]] - begin <= first)
            mentioned.setdefault(form, []).append(sentence)
            holding.setdefault(form, set()).add(number)
    names = [name for name in mentioned if len(holding[name]) > 1 and name]
    if o["entity_ties"] == "later":
        names.reverse()
    names.sort(key=lambda name: -len(holding[name]))

    picks = min(max(int(len(spans) * o["ratio"]), 1), len(spans))
    chosen: dict[int, str] = {}
    for name in names:
        if len(chosen) == picks:
            break
        best, highest = -1, 0.0
        for sentence in mentioned[name]:
            if scores[sentence] > highest:
                best, highest = sentence, scores[sentence]
        if best >= 0:
            chosen.setdefault(best, name)
    for sentence in sorted(range(len(spans)), key=lambda i: -scores[i]):
        if len(chosen) < picks:
            chosen.setdefault(sentence, "")

    lengths = {i: spans[i][1] - spans[i][0] for i in chosen}
    if o["target_length"] is not None:
        left = room = o["target_length"] - 1 - o["begin"]
        whole_lengths, lengths = lengths, {}
        for i, length in whole_lengths.items():
            if length <= left:
                lengths[i] = length
                left -= length
        if whole_lengths and not lengths:
            lengths = {next(iter(whole_lengths)): room}
    own = id_keys(key, [batch.sequence_id(row) + bytes(4)])[0]
    stream = np.random.Philox(key=own).random_raw(4 * (len(spans) + 1)).reshape(-1, 4)[1:, 0]
    shown = sorted(lengths, key=lambda i: int(stream[i]))[: int(len(lengths) * o["visible"])]
    ranks = {i: rank for rank, i in enumerate(lengths)}
    return [
        (spans[i][0], lengths[i], (VISIBLE if i in shown else IN_SOURCE) | IN_TARGET, scores[i], ranks[i], chosen[i])
        for i in sorted(lengths)
    ]


def plain_form(name: str) -> str:
    words = name.casefold().split()
    words = words[1:] if words[:1] == ["the"] else words
    text = " ".join(words)
    return text[:-2].strip() if text[-2:] in ("'s", "’s") else text
