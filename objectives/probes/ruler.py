"""The thirteen tasks of RULER, with words and draws of our own; two ask given questions among other documents.

Source: Hsieh et al. 2024, "RULER", section 3 and appendix B. docs/probes.md lists the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial

import numpy as np

from corpora.errors import FarspanError
from corpora.schemas.pairs import PairLengths, PairSet
from corpora.storage.ragged import Ragged
from objectives.probes.example import WHOLE, Draws, Example, Materials, Probe, Request, Text, encode_numbers


@lru_cache(maxsize=2)
def _lengths(pairs: PairSet) -> PairLengths:
    return PairLengths.of(pairs)


def fitting_questions(pairs: PairSet, length: int, several: bool) -> np.ndarray:
    """Rows of the questions about one document, or about ``several``, that leave a quarter of ``length`` free."""
    lengths, rows = _lengths(pairs), np.arange(len(pairs))
    documents = lengths.documents_of(rows)
    ends = np.append(0, np.cumsum(documents.values))[documents.offsets]
    sizes = np.diff(ends) + lengths.queries
    return rows[(sizes <= length * 3 // 4) & ((documents.lengths > 1) == several) & (pairs.target_counts > 0)]


def answer_question(request: Request, several: bool) -> Example:
    """A given question about one document, or about ``several``, among other documents, all numbered."""
    pairs, draws = request.materials.questions, request.draws("facts")
    assert pairs is not None  # checked before work starts
    rows = fitting_questions(pairs, request.length, several)
    # a permutation of the questions, so that none comes twice before all came once
    turn, number = divmod(request.number, len(rows))
    order = Draws(request.key, f"questions {several} {request.length} {turn}").distinct(len(rows), len(rows))
    (pair,) = pairs.table([int(rows[order[number]])]).to_pylist()
    needed = pair["document_rows"]
    places = draws.below(WHOLE, len(needed)).tolist() if several else [request.place]
    return Example(
        query=f"{request.materials.tokenizer.decode(pair['query'])} Answer:".strip(),
        answers=pair["references"],
        background=partial(_documents_around, request, needed, places),
        places=places,
        needed=range(len(needed)),
        hops=len(needed),
        cut=False,
        alternatives=True,
        split=pair["split"],
    )


def _documents_around(
    request: Request, needed: Sequence[int], places: Sequence[int], materials: Materials, room: int
) -> Text:
    """Numbered documents of ``room`` tokens, at most a heading less: the needed ones at their places, among drawn ones.

    The last drawn document is cut.
    """
    total = len(materials.documents)
    drawn = request.draws("text").distinct(total, min(total, room)).tolist()
    units = [materials.document(row).tokens for row in needed]
    ends = 2 * len(materials.line_end)
    size = sum(len(unit) + ends for unit in units) + int(headings(materials, len(units)).values.size)
    for row in drawn:
        if size >= room:
            break
        if row not in needed:
            units.append(materials.document(row).tokens)
            size += len(units[-1]) + ends + len(headings(materials, len(units))[len(units) - 1])
    units[-1] = units[-1][: max(len(units[-1]) - max(size - room, 0), 0)]
    around = [unit for unit in units[len(needed) :] if len(unit)]
    edges = np.cumsum([0, *map(len, around)])
    wanted = np.array(places) * edges[-1] // WHOLE
    at = np.abs(edges[:, None] - wanted).argmin(axis=0)  # before which of the others each needed one stands
    order = np.argsort(np.concatenate([at, np.arange(len(around)) + 0.5]), kind="stable").tolist()
    units = [*units[: len(needed)], *around]
    names = headings(materials, len(units))
    parts = [
        np.concatenate([names[place], materials.line_end, units[number], materials.line_end]).astype(np.int32)
        for place, number in enumerate(order)
    ]
    return Text.of(Ragged.from_rows(parts, np.int32))


def headings(materials: Materials, count: int) -> Ragged:
    """Encode ``Document 1:`` and so on."""
    return encode_numbers(materials, "Document {}:", count).take(np.arange(count))


NOISE = (
    "The path goes on.",
    "The hill is green and the lake is blue.",
    "A cloud moves over the valley.",
    "Here and there a bird sings.",
    "The day is long.",
)
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_FREQUENT = 6_079_271  # 10**7 / zeta(2): the share of the most frequent code


def needle(key: str, value: str) -> str:
    """Sentence that states the value of a key."""
    return f"The value of {key} is {value}."


def draw_values(draws: Draws, count: int) -> list[str]:
    """Draw different numbers of seven digits."""
    return [str(1_000_000 + number) for number in draws.distinct(9_000_000, count).tolist()]


def draw_codes(draws: Draws, count: int, letters: int) -> list[str]:
    """Draw different codes of at most six letters."""
    numbers = draws.distinct(len(_ALPHABET) ** letters, count).tolist()
    return ["".join(_ALPHABET[n // 26**place % 26] for place in range(letters)) for n in numbers]


def essay(request: Request, materials: Materials, room: int) -> Text:
    """Sentences of the documents."""
    return materials.essay(request.draws("text"), room)


def noise(materials: Materials, room: int) -> Text:
    """Five sentences, again and again."""
    units = materials.encode(NOISE)
    return Text.of(units.take(np.arange(len(NOISE) * (room // len(units.values) + 1)) % len(NOISE)))


def other_needles(request: Request, known: frozenset[str], coded: bool, materials: Materials, room: int) -> Text:
    """Needles with other keys and values than the ``known`` ones."""
    draws, count = request.draws("text"), 16
    while True:
        keys = draws.hexadecimal(count) if coded else materials.keys(draws, count)
        values = draws.hexadecimal(count) if coded else draw_values(draws, count)
        pairs = zip(keys, values, strict=True)
        units = materials.encode([needle(*pair) for pair in pairs if known.isdisjoint(pair)])
        if len(units.values) >= room:
            return Text.of(units)
        count += count * room // max(len(units.values), 1) // 8 + count


def find_needle(
    request: Request, haystack: str, keys: int = 1, each: int = 1, asked: int = 1, coded: str = ""
) -> Example:
    """Needles in a haystack: ``keys`` keys with ``each`` values, of which the first ``asked`` keys are asked for.

    ``haystack``: ``noise``, ``essay`` or ``needles``. ``coded``: ``values`` or ``both`` for those that are codes.
    """
    draws = request.draws("facts")
    names = draws.hexadecimal(keys) if coded == "both" else request.materials.keys(draws, keys)
    values = draws.hexadecimal(keys * each) if coded else draw_values(draws, keys * each)
    needed = range(asked * each)
    places = draws.below(WHOLE, len(values)).tolist()
    if len(needed) == 1:
        places[0] = request.place
    known = frozenset([*names, *values])
    backgrounds: Mapping[str, Callable[[Materials, int], Text]] = {
        "noise": noise,
        "essay": partial(essay, request),
        "needles": partial(other_needles, request, known, coded == "both"),
    }
    query = f"What is the value of {names[0]}? The value of {names[0]} is"
    if len(needed) > 1:
        of = f"{', '.join(names[: asked - 1])} and {names[asked - 1]}" if asked > 1 else names[0]
        query = f"What are the values of {of}? The values of {of} are"
    return Example(
        query=query,
        answers=values[: len(needed)],
        background=backgrounds[haystack],
        facts=[needle(names[number // each], value) for number, value in enumerate(values)],
        places=sorted(places) if each > 1 else places,  # so that values of a key are asked for in the order of the text
        needed=needed,
    )


def trace_variables(request: Request, hops: int = 4) -> Example:
    """A value that goes from variable to variable: all variables that have it."""
    draws = request.draws("facts")
    names, value = draw_codes(draws, hops + 1, 5), str(10_000 + int(draws.below(90_000, 1)[0]))
    return Example(
        query=f"Which variables have the value {value}? The variables with the value {value} are",
        answers=names,
        background=noise,
        facts=[f"Let {name} be {of}." for name, of in zip(names, [value, *names], strict=False)],
        places=sorted(draws.below(WHOLE, len(names)).tolist()),
        needed=range(len(names)),
        hops=hops,
    )


def count_words(request: Request) -> Example:
    """A numbered list in which ten words are frequent."""
    common = request.materials.pick_words(request.draws("facts"), 10)
    return Example(
        query="Which ten words occur most often in the list? The ten words that occur most often are",
        answers=common,
        background=partial(word_list, request, common),
        hops=0,
        cut=False,
    )


def word_list(request: Request, common: Sequence[str], materials: Materials, room: int) -> Text:
    """A numbered list of at most ``room`` tokens: the common words 30 times, others 3 times (short ones: 6 and 1)."""
    often, seldom = (30, 3) if request.length >= 4096 else (6, 1)
    draws = request.draws("text")
    words = [word for word in draws.pick(materials.words, len(materials.words)) if word not in common]
    units = materials.encode([*common, *words])
    numbers = encode_numbers(materials, "{}.", room).lengths
    first = np.repeat(np.arange(len(common)), often)
    for times in range(seldom, often // 2 + 1):  # more often if the documents have too few words
        entries = np.concatenate([first, np.repeat(np.arange(len(common), len(units)), times)])[: len(numbers)]
        sizes = np.cumsum(units.lengths[entries] + numbers[: len(entries)])
        if sizes[-1] > room:
            break
    count = int(np.searchsorted(sizes, room, side="right"))
    if count == len(sizes) or count < len(first) + 10:
        what = f"{len(words):,} other words are too few" if count == len(sizes) else f"{len(first)} words do not fit"
        raise FarspanError(f"a list of {room:,} tokens: {what}; give more documents, or other --lengths")
    order = entries[:count][draws.distinct(count, count)]
    both = Ragged.concatenate([units, encode_numbers(materials, "{}.", room)])
    places = np.stack([len(units) + np.arange(count), order], axis=1).ravel()  # number and word in turn
    text = Text.of(both.take(places))
    return Text(text.tokens, text.starts[::2])


def count_codes(request: Request) -> Example:
    """Codes whose frequency falls with the square of their rank; the first rank is dots."""
    codes = draw_codes(request.draws("facts"), max(request.length // 50, 8), 6)
    return Example(
        query="Which three codes occur most often? The three codes that occur most often are",
        answers=codes[:3],
        background=partial(code_list, request, codes),
        hops=0,
        cut=False,
    )


def code_list(request: Request, codes: Sequence[str], materials: Materials, room: int) -> Text:
    """At most ``room`` tokens of dots and codes."""
    units = materials.encode(["...", *codes])
    ranks = np.arange(1, len(units) + 1)

    def counts(total: int) -> np.ndarray:
        return total * _FREQUENT // (10_000_000 * ranks**2)

    low, high = 0, 2 * room  # the largest total that fits
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if int(counts(middle) @ units.lengths) <= room else (low, middle - 1)
    each = counts(low)
    if not (np.diff(each[:5]) < 0).all():
        raise FarspanError(f"{room:,} tokens are too few for codes with different frequencies; give larger --lengths")
    each[0] += (room - int(each @ units.lengths)) // int(units.lengths[0])
    entries = np.repeat(np.arange(len(units)), each)
    return Text.of(units.take(entries[request.draws("text").distinct(len(entries), len(entries))]))


def _niah(haystack: str, **options: int | str) -> Probe:
    one = options.get("asked", 1) == options.get("each", 1) == 1
    return Probe(partial(find_needle, haystack=haystack, **options), placed=one, essay=haystack == "essay")  # type: ignore[arg-type]


RULER: Mapping[str, Probe] = {
    "niah_single_1": _niah("noise"),
    "niah_single_2": _niah("essay"),
    "niah_single_3": _niah("essay", coded="values"),
    "niah_multikey_1": _niah("essay", keys=4),
    "niah_multikey_2": _niah("needles"),
    "niah_multikey_3": _niah("needles", coded="both"),
    "niah_multivalue": _niah("essay", each=4),
    "niah_multiquery": _niah("essay", keys=4, asked=4),
    "vt": Probe(trace_variables, essay=False),
    "cwe": Probe(count_words, essay=False),
    "fwe": Probe(count_codes, essay=False),
    "qa_1": Probe(partial(answer_question, several=False), placed=True),
    "qa_2": Probe(partial(answer_question, several=True)),
}
