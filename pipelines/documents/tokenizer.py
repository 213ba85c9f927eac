"""``farspan tokenizer train``: train a tokenizer on raw text, which is read as for ``farspan documents``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

from corpora.errors import FarspanError
from corpora.printing import format_count
from corpora.readers import ReadOptions
from corpora.readers.selection import plan_ranges, read_records
from corpora.reporting import Silence, note, result
from corpora.tokenizers.training import train_tokenizer
from pipelines.documents.inputs import Input, check_first, every_file, read_options
from pipelines.documents.options import TokenizerTraining


def command(options: TokenizerTraining) -> None:
    """Run ``farspan tokenizer train``."""
    with Silence(partial(note, f"{options.output}: trains a tokenizer on the text")):
        message = train(options.kind, options.vocab_size, options.text.input, options.text.read, options.output)
    result(message, output=options.output)


def train(kind: str, vocab_size: int, inputs: Sequence[str], read: ReadOptions, output: str) -> str:
    """Train and save a tokenizer; return a line with its properties and the number of bad records."""
    parsed = tuple(Input.parse(text, read) for text in inputs)
    for item in parsed:
        check_first(item)
    rejects: Counter[str] = Counter()
    texts = _texts(parsed, rejects)
    first = next(texts, None)
    if first is None:
        raise FarspanError(f"--input {', '.join(inputs)}: no text to train a tokenizer on{_count_rejects(rejects)}")
    tokenizer = train_tokenizer(kind, chain([first], texts), vocab_size, output)
    message = f"{output}: {kind} tokenizer with {tokenizer.vocab_size:,} ids, fingerprint {tokenizer.fingerprint[:16]}"
    fewer = f"; fewer than {vocab_size:,}, as the text has no more" if tokenizer.vocab_size < vocab_size else ""
    return message + fewer + _count_rejects(rejects)


def _count_rejects(rejects: Counter[str]) -> str:
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(rejects.items()))
    return f"; {format_count(rejects.total(), 'bad record')} left out: {reasons}" if rejects else ""


def _texts(inputs: tuple[Input, ...], rejects: Counter[str]) -> Iterator[str]:
    """Yield texts in the order of sources, files and records, not of the arguments; count bad records."""
    reads = read_options(inputs)
    for source, _, path in sorted(every_file(inputs)):
        read = reads[source]
        for piece in plan_ranges(path, read, 1 << 62):
            for block in read_records(piece, read):
                rejects.update(reject.reason for reject in block.rejects)
                yield from filter(None, block.texts)
