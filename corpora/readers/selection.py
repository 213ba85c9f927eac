"""Choice of a file's reader; planning and reading of files, with all their errors handled in one place."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib import import_module

from corpora.errors import FarspanError, StoreError
from corpora.readers import isolation, load_dataset
from corpora.readers.blocks import BlockBuilder, Reader
from corpora.readers.formats import FORMATS
from corpora.readers.isolation import FILE_ERRORS
from corpora.readers.options import PAIRS_OF, ReadOptions
from corpora.readers.records import RESTORE, Cut, DamagedFile, Range, RecordBlock
from corpora.readers.streams import compression
from corpora.readers.tasks import MODULES
from corpora.storage import files
from corpora.storage.stores.local_disk import DanglingLink, FileState

_LOAD_DATASET = "load-dataset"  # stands for the format of ``hf:`` inputs, which are not files
_EMPTY_BYTES = 512  # a file without records that says so: compressed data of nothing, ``[]``, a line end
_PICKLES = (".pt", ".pth", ".pkl", ".pickle")
_NOTES = r"(README|LICENSE|INFO)(\.md|\.txt)?"


@cache
def load_reader(format: str) -> Reader:
    """Return the reader of one of ``FORMATS``, of ``DATA_SETS`` (or its pairs), or of ``hf:`` names."""
    if format == _LOAD_DATASET:
        return load_dataset.READER
    chosen: Reader
    if format in FORMATS:
        chosen = import_module(f"corpora.readers.formats.{format.replace('-', '_')}").READER
    else:
        name = format.removeprefix(PAIRS_OF)
        chosen = import_module(f"corpora.readers.tasks.{MODULES[name]}").READERS[name]
    return chosen


@cache
def formats_by_suffix() -> dict[str, str]:
    """Map the suffix of a file's name, with its dot, to the default format."""
    return {suffix: format for format in FORMATS for suffix in load_reader(format).suffixes}


@cache
def native_suffixes() -> tuple[str, ...]:
    """Return the suffixes of files that native code reads in some format."""
    readers = [load_reader(format) for format in FORMATS]
    return tuple(s for r in readers for s in (r.suffixes if r.native else r.native_suffixes))


def holds_records(path: str, options: ReadOptions) -> bool:
    """Return True if a file in a folder can contain records of a published data set, judging by its name."""
    if not options.format or not load_reader(options.format).published:
        return True
    if records := load_reader(options.format).records:
        return bool(re.fullmatch(records, posixpath.basename(path)))
    beside = load_reader(options.format).beside or _NOTES
    return not re.fullmatch(f"{beside}|{_NOTES}", posixpath.basename(path))


def gives_ids(options: ReadOptions) -> bool:
    """Return True if the format gives each document an id, by which repeated documents are left out."""
    return options.format is not None and load_reader(options.format).own_ids


def state_of(path: str) -> FileState:
    """Return the state of a file, or of a data set of ``load_dataset``, whose revision is part of its name."""
    return FileState(load_dataset.size(path), "") if load_dataset.is_data_set(path) else files.state(path)


def format_of(path: str, options: ReadOptions) -> str:
    """Return the format to read ``path`` in."""
    if load_dataset.is_data_set(path):
        if options.format:
            raise FarspanError(f"{path}: its own description gives the format; leave --format {options.format} out")
        return _LOAD_DATASET
    name = posixpath.basename(path)
    if kind := compression(path):
        name = name.rpartition(".")[0]
    suffix = posixpath.splitext(name)[1].lower()
    format = options.format or formats_by_suffix().get(suffix)
    if format is None:
        raise FarspanError(
            f"{path}: its name does not tell the format; known suffixes are {', '.join(formats_by_suffix())}, those of "
            "text also with .gz, .bz2, .xz and .zst. Give --format, or a glob that leaves the file out"
            + (f"; --input 'hf:csv:{path}' reads it with the extra datasets" if suffix == ".csv" else "")
        )
    if load_reader(format).own_ids and path.lower().endswith(_PICKLES):
        raise FarspanError(f"{path}: a pickle, which can run code, is never loaded; save it again as JSON lines")
    by_name = formats_by_suffix().get(suffix)
    if kind and (load_reader(format).native or (by_name and load_reader(by_name).native)):
        raise FarspanError(f"{path}: {format} files are compressed inside, not as a whole; unpack the .{kind} first")
    if load_reader(format).fields is None:
        for flag, name in options.named_fields:
            raise FarspanError(f"{path}: format {format} has no field {name!r}; leave {flag} out")
    if options.title_field and load_reader(format).own_ids:
        raise FarspanError(f"{path}: format {format} gives no titles; leave --title-field out")
    return format


def plan_ranges(path: str, options: ReadOptions, target_bytes: int) -> list[Range]:
    """Split a file into ranges of about ``target_bytes`` if its format allows it; at least one.

    An unreadable file, a dangling link and a pipe are one range each, and give one reject.
    """
    if target_bytes < 1:
        raise FarspanError(f"ranges of {target_bytes} bytes: give a positive number")
    try:
        state = state_of(path)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not isinstance(error, DanglingLink):
            raise FarspanError(f"{path}: vanished since it was found ({error}); run the command again") from error
        return [Range(path, options.format or "", 0, 1, 0, None)]
    format = format_of(path, options)
    try:
        native, arguments = _is_native(path, format), (path, options, target_bytes)
        (planned,) = isolation.call(cut_file, *arguments) if native else [cut_file(*arguments)]
    except FILE_ERRORS:
        planned = [Cut(0, 1, state.size)]
    return [
        Range(path, format, cut.start, cut.stop, cut.bytes, state.size, state.version, state.instance)
        for cut in planned
    ]


def cut_file(path: str, options: ReadOptions, target_bytes: int) -> list[Cut]:
    """Split a readable file, in this process."""
    with _as_file_error():
        return load_reader(format_of(path, options)).plan(path, target_bytes)


def _is_native(path: str, format: str) -> bool:
    """Return True if native code, which damaged or malicious input can crash, reads the file."""
    return load_reader(format).native or (format != _LOAD_DATASET and path.lower().endswith(native_suffixes()))


@contextmanager
def _as_file_error() -> Iterator[None]:
    """Convert exceptions that native code raises for damaged bytes to ``OSError``."""
    try:
        yield
    except (DamagedFile, FarspanError, *FILE_ERRORS):
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


def read_records(piece: Range, options: ReadOptions) -> Iterator[RecordBlock]:
    """Read the records of a range in file order; the ranges of a file together give every record once.

    A bad record is a reject, and its neighbours are kept. If a file ends early or is damaged, all complete records
    before that are kept, and one reject gives the place. If compressed data fails a checksum, everything is discarded
    from the beginning of the member, frame or stream that the checksum covers.

    A file without a good record is lost as a whole, unless it is so small that it is merely empty.
    """
    position = good = bad = lost = 0
    last = BlockBuilder(piece.path, options)
    try:
        if piece.size is not None:
            native = _is_native(piece.path, piece.format)
            read = isolation.call(read_blocks, piece, options) if native else read_blocks(piece, options)
            for block in read:
                position = block.position
                good += len(block.texts) + block.filtered
                bad += len(block.rejects)
                lost += block.lost
                yield block
    except FILE_ERRORS as error:
        damaged = DamagedFile(error, piece.start)
        last.damage(damaged, _lost_bytes(damaged, piece, position))
    _check_unchanged(piece, last)
    lost += last.block.lost
    if piece.is_whole and not good and lost < piece.bytes:
        if bad or last.block.lost:
            last.lose(piece.bytes - lost)
        elif piece.bytes > _EMPTY_BYTES:
            last.reject(0, "no_record", b"", f"not one record in {piece.bytes:,} bytes")
            last.lose(piece.bytes)
    block = last.take(piece.bytes)
    if block.read or block.damaged:
        yield block


def read_blocks(piece: Range, options: ReadOptions) -> Iterator[RecordBlock]:
    """Read the records of a range of a file, in this process."""
    chosen = load_reader(piece.format)
    block = BlockBuilder(piece.path, chosen.resolve(options), piece.format.startswith(PAIRS_OF))
    position = 0
    try:
        with _as_file_error() if _is_native(piece.path, piece.format) else nullcontext():
            for position in chosen.read(piece, block):
                if block.full:
                    yield block.take(position)
    except (DamagedFile, *FILE_ERRORS) as error:
        damaged = error if isinstance(error, DamagedFile) else DamagedFile(error, piece.start)
        block.damage(damaged, _lost_bytes(damaged, piece, position))
    last = block.take(piece.bytes)
    if last.read:
        yield last


def _lost_bytes(damaged: DamagedFile, piece: Range, position: int) -> int:
    """Return the bytes that count as lost: the whole file if its end is missing, as nobody knows how much that was."""
    if damaged.reason == "truncated_file":
        return piece.size or 0
    return piece.bytes - position if damaged.lost is None else damaged.lost


def _check_unchanged(piece: Range, block: BlockBuilder) -> None:
    try:
        state = state_of(piece.path)
    except OSError as error:
        if piece.size is not None:
            raise StoreError(f"{piece.path}: vanished while the job ran ({error}); {RESTORE}") from error
        block.damage(DamagedFile(error, piece.start), 0)
    else:
        if state.size != piece.size:
            was = "could not be read" if piece.size is None else f"had {piece.size:,} bytes"
            raise FarspanError(f"{piece.path}: {was} when the job began and has {state.size:,} bytes now; {RESTORE}")
        if state != (piece.size, piece.version, piece.instance):
            raise FarspanError(f"{piece.path}: was written to or replaced while the job ran; {RESTORE}")


def check_fields(path: str, options: ReadOptions) -> None:
    """Check that the first good records of a file have the fields that the options name.

    A file that cannot be read, or has no good record at its beginning, passes: reading it gives rejects.
    """
    format = format_of(path, options)
    options = load_reader(format).resolve(options)
    try:
        native = _is_native(path, format)
        (names,) = isolation.call(list_field_names, path, options) if native else [list_field_names(path, options)]
    except FILE_ERRORS:
        return
    for flag, name in [("--text-field", options.text_field), *options.named_fields]:
        if names and name not in names:
            # the user probably means the field with most text
            proposal = max(names, key=lambda known: names[known]) if flag == "--text-field" else "NAME"
            raise FarspanError(
                f"no field {name!r} in {path}; its fields: {', '.join(sorted(names))}; give {flag} {proposal}"
            )


def list_field_names(path: str, options: ReadOptions) -> dict[str, int]:
    """Return the fields of a file's first records with the amount of text in each, read in this process."""
    look = load_reader(format_of(path, options)).fields
    with _as_file_error():
        return look(path) if look else {}
