"""Kernels that may run as plain Python: all of them, in both forms, on edge values of their dtypes.

Plain Python computes with the dtypes of arrays, compiled code in 64 bits. The two must still give the same bits.
"""

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora import keyed
from corpora.compiled import Intrinsic, Kernel
from corpora.packing import assemble, best_fit, concatenate
from corpora.schemas import corpus
from corpora.storage import gather, ragged
from corpora.storage.ragged import read_only
from corpora.text import sentences, utf8, word_ngrams
from objectives.draws import compositions
from objectives.rendering import kernels as rendering
from objectives.rendering import stream

ROOT = Path(__file__).parent.parent
INT32, INT64, UINT64 = (np.iinfo(kind).max for kind in (np.int32, np.int64, np.uint64))
PHILOX_BLOCKS: Any = keyed.philox_blocks
LOCATE: Any = gather._locate
COPIED = np.zeros(4096, np.uint8)  # memory that kernels write to by its address
CASES: dict[Kernel, Callable[[np.random.Generator], Iterator[tuple]]] = {}


def cases_of(kernel: Any) -> Callable:
    """Declare a generator of a kernel's arguments."""
    return lambda make: CASES.setdefault(kernel, make)


def small_kernels() -> list[Any]:
    """All kernels of the packages that are declared small."""
    found = set()
    for room in ("corpora", "objectives", "trainer", "pipelines", "farspan"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if re.search(r"compiled\([^)]*\bsmall=", path.read_text()):
                module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
                found |= {each for each in vars(module).values() if isinstance(each, Kernel) and each.small}
    own: Any = (kernel for kernel in found if not isinstance(kernel, Intrinsic))  # intrinsics run inside the others
    return sorted(own, key=lambda kernel: (kernel.__module__, kernel.__name__))


def outcome(form: Callable, arguments: tuple) -> tuple:
    """Result, arguments afterwards, and the memory that is written by address."""
    COPIED[:] = 0
    own = copied(arguments)
    return form(*own), own, COPIED.copy()


def copied(value: Any) -> Any:
    """Own arrays with the same flags, which numba compiles for."""
    if isinstance(value, tuple):
        return tuple(map(copied, value))
    if not isinstance(value, np.ndarray):
        return value
    own = value.copy()
    own.flags.writeable = value.flags.writeable
    return own


def assert_same(plain: Any, fast: Any) -> None:
    if isinstance(plain, tuple):
        assert len(plain) == len(fast)
        for one, other in zip(plain, fast, strict=True):
            assert_same(one, other)
    elif isinstance(plain, np.ndarray):
        assert plain.dtype == fast.dtype
        assert np.array_equal(plain, fast)
    else:  # numba returns Python's numbers
        assert plain == fast


def offsets_of(lengths: Any) -> np.ndarray:
    return np.append(0, np.cumsum(lengths)).astype(np.int64)


def wide(rng: np.random.Generator, count: int) -> np.ndarray:
    """uint64: borders of 32 and 64 bits, then random ones."""
    edges = [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, UINT64]
    return np.append(np.array(edges, np.uint64), rng.integers(0, UINT64, count, np.uint64, endpoint=True))


@cases_of(keyed.philox_blocks)
def _blocks(rng):
    for key in wide(rng, 3):
        for first in (1, UINT64 - 2):  # the counter wraps around
            yield key, ~key, np.uint64(first), np.empty((5, 4), np.uint64)
    yield np.uint64(0), np.uint64(0), np.uint64(1), np.empty((0, 4), np.uint64)


@cases_of(best_fit.best_fit_parts)
def _pieces_to_fit(rng):
    for capacity in (3, 63, 64, 5000):
        for reserved in (0, 2):
            for count in (0, 1, 200):
                yield rng.integers(1, capacity - reserved + 1, count), capacity, reserved


@cases_of(compositions._draw_up_to)
def _bounded_draws(rng):
    for least in (0, 1, 1000, 2**31, 2**32 - 1000):  # of every second draw up to 2**31, a new one is needed
        for used in (0, 7, 500, 512):
            blocks, key = np.empty((compositions._BLOCKS, 4), np.uint64), read_only(wide(rng, 2)[-2:])[0]
            PHILOX_BLOCKS.compiled()(*key, np.uint64(used // 8 // 64 * 64 + 1), blocks)
            for count in (0, 1, 40):
                yield np.uint64(least), np.uint64(count), key, used, blocks, np.zeros(40, np.uint64)


@cases_of(compositions._write_pieces)
def _pieces_of_rows(rng):
    visible, hidden = (np.sort(rng.integers(1, 90, 20)) for _ in range(2))
    borders = read_only(np.array([0, 5, 70, 90, 120, INT32], np.int32))[0]
    for shift in (0, -1, -100, 50):
        for border, last in [(0, 6), (2, 4), (3, 3)]:
            starts, lengths = np.zeros((2, 40), np.int32)
            yield (visible, hidden, 20, shift), (3, 120), borders, border, last, starts, lengths, np.uint64(2)


@cases_of(compositions.draw_spans)
def _drawn_spans(rng):
    sizes = np.array([0, 1, 2, 3, 63, 64, 65, 500, 3000])
    for placement in range(len(compositions.PLACEMENTS)):
        for density in (0.1, 0.5, 0.9):
            noise = np.minimum((sizes * density).astype(np.int64), np.maximum(sizes - 1, 0))
            spans = np.minimum(noise, np.maximum(np.minimum(noise // 2, sizes - noise), noise > 0))
            borders = [np.unique(np.append(0, rng.integers(0, size + 1, 4))) for size in sizes]
            documents = read_only(np.concatenate(borders).astype(np.int32), offsets_of([len(each) for each in borders]))
            starts, lengths = np.zeros((2, int((spans + 6).sum())), np.int32)
            pieces = np.zeros(len(sizes), np.int64)
            firsts, placements = np.arange(len(sizes)), np.full(len(sizes), placement)
            yield keys_of(sizes), sizes, noise, spans, firsts, placements, documents, starts, lengths, pieces


def keys_of(rows: np.ndarray) -> np.ndarray:
    """As ``id_keys`` returns them; the first key is the largest."""
    keys = keyed.id_keys(b"k", [str(row) for row in range(len(rows))]).copy()
    keys[0] = UINT64
    return read_only(keys)[0]


@cases_of(rendering.measure)
def _measured_rows(rng):
    for aligned in (False, True):
        for _ in range(20):
            yield *rendered_rows(rng, wrong=True)[:3], aligned, np.zeros((6, 4), np.int32)
    for start, length in [(INT32, INT32), (0, INT32), (-1, 1), (1, -INT32 - 1), (0, 0), (5, 1)]:  # of a row of 5 tokens
        spans: Any = np.array([start], np.int32), np.array([length], np.int32), np.array([3], np.uint8), offsets_of(1)
        tokens = read_only(np.zeros(5, np.uint16), offsets_of(5))
        for borders in ([0], [1], [0, 6], [0, 3, 2], [0, INT32], [-1]):
            documents = read_only(np.array(borders, np.int32), offsets_of(len(borders)))
            yield tokens, documents, read_only(*spans), False, np.zeros((6, 1), np.int32)


@cases_of(rendering.fill)
def _filled_rows(rng):
    frames = [(0, -1, -1, -1, -1, -1), (0, 1, 2, 3, 4, 5), (INT32, -1, INT32, -1, INT32, -1), (-100, 7, -1, 8, -1, 9)]
    for frame in frames:
        for marked in (False, True):
            for segments in (0, 1):
                for _ in range(3):
                    columns = rendered_rows(rng, wrong=False)
                    source, target = np.empty((2, 4, 200), np.int32)
                    markers = read_only(INT32 - np.arange(60, dtype=np.int32))[0]
                    shape = (4, 200) if segments else (0, 0)
                    heads = np.array([-1, 7, INT32, -1], np.int32)
                    yield *columns, markers, marked, frame, heads, source, target, np.empty(shape, np.int32)


def rendered_rows(rng: np.random.Generator, wrong: bool) -> tuple:
    """Tokens, documents, spans and replacements of four rows; with faults if wrong."""
    tokens, documents, spans, replaced = [], [], [], []
    for size in (0, *rng.integers(1, 60, 3)):
        tokens.append(rng.choice([0, 1, 9, 65535], size))
        inner = rng.integers(0, size + 1 + wrong, 3)
        documents.append(np.append(0, inner if wrong else np.sort(inner)) if size else [])
        cuts = np.unique(np.append([0, size], rng.integers(0, size + 1, 12)))
        if not wrong:
            cuts = np.union1d(cuts, documents[-1])
        for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            flag = rng.integers(0, 256) if wrong else rng.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 10])
            spans.append((len(tokens) - 1, first, last - first, flag))
            if flag & 8 and not wrong:
                replaced.append((len(tokens) - 1, last - first))
    row, first, length, flag = np.array(spans or np.zeros((0, 4)), np.int64).T
    given = [sum(count for at, count in replaced if at == each) for each in range(4)]
    columns = first.astype(np.int32), length.astype(np.int32), flag.astype(np.uint8)
    return (
        read_only(np.concatenate(tokens).astype(np.uint16), offsets_of([*map(len, tokens)])),
        read_only(np.concatenate(documents).astype(np.int32), offsets_of([*map(len, documents)])),
        read_only(*columns, offsets_of(np.bincount(row, minlength=4))),
        read_only(rng.integers(0, INT32, sum(given)).astype(np.int32), offsets_of(given)),
    )


@cases_of(stream._join)
def _joined_rows(rng):
    for width in (0, 3):
        ids = read_only(*rng.choice([0, 9, INT32, -INT32], (2, 4, width)).astype(np.int32))
        sources, targets = rng.integers(0, width + 1, (2, 4))
        skipped = np.minimum(targets, rng.integers(0, 2, 4))
        offsets = offsets_of(sources + targets - skipped)
        out = np.empty((4, offsets[-1]), np.int32)
        for parts in (np.zeros((0, 0), np.int32), ids[0]):
            yield (*ids, *read_only(sources, skipped, rng.integers(0, 4, 4), parts)), offsets, tuple(out)


@cases_of(stream._lay_out)
def _laid_out_rows(rng):
    sizes, ended, parts = np.array([0, 5, 1, 9]), np.array([1, 0, 1, 1], bool), offsets_of([2, 0, 1, 1])
    for kind in (np.uint16, np.int32):
        text = rng.choice([0, 9, 65535], 15).astype(kind)
        for frame in [(-1, -1, -1), (1, -1, 2), (INT32, INT32, INT32), (-1, 3, -1)]:
            begin, between, end = (number != -1 for number in frame)
            columns = read_only(text, offsets_of(sizes)[:-1], sizes, ended & end, parts)
            lengths = [5 + 2 * begin + between + end, 0, 1 + begin + end, 9 + begin + end]
            out = np.empty((4, sum(lengths)), np.int32)
            for across in (False, True):
                yield columns, frame, across, offsets_of(lengths), tuple(out)


@cases_of(word_ngrams._ngrams)
def _all_bytes(rng):
    for n in (1, 2, 5):
        data = read_only(np.append(np.arange(256), rng.choice([32, 65, 90, 97, 128, 255], 200)).astype(np.uint8))[0]
        edges = read_only(np.sort(np.append(rng.integers(0, 457, 20), [456, 456])))[0]
        yield data, edges, n
        yield data, edges[:1], n


@cases_of(word_ngrams._count_repeated)
def _repetitions(rng):
    values = rng.choice(np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 7], np.uint32), 200)
    rows = np.sort(np.append([0, 200], rng.integers(0, 201, 19)))
    for parts in ([0, 20], [0, 0, 3, 20], [5], [0, *range(21)]):
        yield values, rows, np.array(parts)


@cases_of(utf8._scan)
def _scanned(rng):
    edges = np.array([0, 0x7F, 0x80, 0xBF, 0xC0, 0xFF], np.uint8)
    for size in (0, 1, 300):
        data = read_only(rng.choice(edges, size))[0]
        characters = int(np.sum(data & 0xC0 != 0x80))
        yield data, np.sort(np.append(rng.integers(0, characters + 1, 20), [0, characters]))


@cases_of(sentences._token_starts)
def _sentences(rng):
    for shift in (0, INT64 - 200):
        rows, bounds = (offsets_of(np.append(0, rng.integers(0, most, 40))) for most in (30, 5))
        starts = np.concatenate([np.sort(rng.choice(200, n, replace=False)) for n in np.diff(rows)])
        boundaries = np.concatenate([np.sort(rng.choice(200, n, replace=False)) for n in np.diff(bounds)])
        yield starts + shift, rows, boundaries + shift, bounds


@cases_of(corpus._gather)
def _gathered(rng):
    sizes = np.array([0, 1, 7, 30])
    for kind in (np.uint16, np.int32):
        values = read_only(rng.choice([0, 1, 9, np.iinfo(kind).max], 38).astype(kind))[0]
        for out, pad in [(np.int32, -1), (np.int64, INT64), (kind, np.iinfo(kind).max)]:
            for width in (0, 5, 40):
                rows = rng.integers(1000, 1006, 8)  # the shard has rows 1001 to 1004
                made, lengths = np.zeros((8, width), out), np.zeros(8, np.int32)
                yield values, offsets_of(sizes)[:-1], sizes, np.int64(1001), rows, made, lengths, width > 5, pad


@cases_of(concatenate.greedy_parts)
def _parts(rng):
    for split in (False, True):
        for kind, most in [(np.int64, 2**60), (np.int32, INT32)]:
            yield np.array([most, 0, most, 1, most - 1], kind), most // 2, 2, split
            yield rng.integers(0, 90, 40).astype(kind), 64, 3, split
        yield np.empty(0, np.int64), 64, 0, split


@cases_of(assemble._bounds)
def _piece_bounds(rng):
    rows = offsets_of(np.append(0, rng.integers(0, 30, 40)))
    values = np.concatenate([np.sort(rng.choice(200, n, replace=False)) for n in np.diff(rows)]).astype(np.int32)
    values[rows[1:][np.diff(rows) > 0] - 1] = INT32
    for kind in (np.int64, np.int32):
        pieces = (rng.choice([0, 7, 90, INT32], 60).astype(kind) for _ in range(2))
        yield values, rows, rng.integers(0, 41, 60), *pieces


@cases_of(ragged._copy_pieces)
def _pieces(rng):
    for kind in (np.uint8, np.uint16, np.int32, np.int64):
        values = rng.choice([0, 1, np.iinfo(kind).max], 500).astype(kind)
        ends = offsets_of(rng.integers(0, 5, 60))
        yield values, rng.integers(0, 490, 60), ends, np.zeros(ends[-1], kind)


LISTS = [np.array([0, 3, 3, 10]), np.array([0, 1, 0, 10]), np.array([-1, 1, 2, INT64])]  # offsets, the last two damaged
TOKENS = np.array([0, 1, 9, 65535] * 3, np.uint16)


def places_of(lists: np.ndarray, size: int = 2) -> list:
    """Columns of a block of three rows: lists, plain values, an absent one and one that is not copied by address."""
    at = TOKENS.ctypes.data
    return [[lists.ctypes.data, at, size, 3, 10], [0, at, 4, 3, 3], [0] * 5, [0, 0, -1, 3, 0]]


@cases_of(gather._locate)
def _located(rng):
    blocks = np.array([places_of(lists) for lists in LISTS] + [places_of(LISTS[0], 4)])
    for which in ([0, 0, 0], [0, 1, 0], [2, 2, 2], [0, 3, 0], []):
        for rows in ([0, 1, 2], [2, 0, 1], [0, 3, 0], [-1, 0, 0], [0, INT64, 0]):
            picked, chosen = np.array(which, np.int64), np.array(rows[: len(which)], np.int64)
            count = len(picked)
            yield blocks, picked, chosen, np.zeros((4, count), np.int64), np.zeros((4, count + 1), np.int64)


@cases_of(gather._copy)
def _moved(rng):
    places = np.array(places_of(LISTS[0]))
    sources, ends = np.zeros((4, 5), np.int64), np.zeros((4, 6), np.int64)
    assert LOCATE.compiled()(places[None], np.zeros(5, np.int64), np.array([2, 0, 1, 1, 0]), sources, ends)
    yield sources, ends, places, COPIED.ctypes.data + np.array([0, 1000, 2000, 3000])


def reached(kernel: Any) -> set[Any]:
    """A kernel and those that it calls."""
    names = kernel.function.__globals__
    called = (names[name] for name in kernel.function.__code__.co_names if isinstance(names.get(name), Kernel))
    return {kernel}.union(*map(reached, called))


def test_every_small_kernel_has_cases_or_is_called_by_one_that_has():
    assert set(CASES) <= set(small_kernels()) <= set().union(*map(reached, CASES))


@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: f"{kernel.__module__}.{kernel.__name__}")
def test_both_forms_give_the_same_bits(kernel):
    count = 0
    for arguments in CASES[kernel](np.random.default_rng(0)):
        with np.errstate(over="ignore"):
            plain = outcome(kernel.plain(), arguments)
        assert_same(plain, outcome(kernel.compiled(), arguments))
        count += 1
    assert count
