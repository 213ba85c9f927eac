"""``farspan tokenizer train``: train a tokenizer on raw text, which is read as for ``farspan documents``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from corpora.readers import ReadOptions
from corpora.readers.selection import plan_ranges, read_records
from corpora.storage import files
from corpora.tokenizers.training import train_tokenizer
from pipelines.documents.inputs import Input, every_file, read_options
from pipelines.documents.options import TokenizerTraining


def command(options: TokenizerTraining) -> None:
    """Run ``farspan tokenizer train``.

    Raises:
        FarspanError: as ``train``.
    """
    print(train(options.kind, options.vocab_size, options.text.input, options.text.read, options.output))


def train(kind: str, vocab_size: int, inputs: Sequence[str], read: ReadOptions, output: str) -> str:
    """Train and save a tokenizer; return a line that describes it.

    Raises:
        FarspanError: no input, no text, or a size that does not fit.
    """
    parsed = tuple(Input.parse(text, read) for text in inputs)
    tokenizer = train_tokenizer(kind, _texts(parsed), vocab_size, output)
    return f"{output}: {kind} tokenizer with {tokenizer.vocab_size:,} ids, fingerprint {tokenizer.fingerprint[:16]}"


def _texts(inputs: tuple[Input, ...]) -> Iterator[str]:
    """Texts in the order of sources, files and records, whatever the arguments' order; bad records are skipped."""
    reads = read_options(inputs)
    for source, _, path in sorted(every_file(inputs)):
        read = reads[source]
        for piece in plan_ranges(path, files, read, 1 << 62):
            for block in read_records(piece, files, read):
                yield from block.texts
