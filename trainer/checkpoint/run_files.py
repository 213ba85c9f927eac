"""The files of a run beside its checkpoints: names, checksums, a check of all of them, and the lock of the run.

- ``recipe.json``: the recipe with every value, the number of starts, and bytes and sha256 of the tokenizer's files;
- ``tokenizer/``: a copy of the data's tokenizer;
- ``starts.jsonl``: a line for each start; replaced as a whole;
- ``metrics.jsonl``: a line for each update and evaluation; only this file grows, so a killed run may leave it with an
  incomplete last line;
- ``summary.json``: written when the run is finished;
- ``validation.json``: texts of the first pairs of the last validation by generation, replaced as a whole.

Each JSON object, also that of a line, ends with the CRC-32 of its other values.

The lock keeps a second process out. Some network file systems have no locks: there, each start raises a counter in
``run.json``, and a process that finds a higher count at its next checkpoint stops, because a later process has taken
over the run.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

from corpora.errors import FarspanError
from corpora.storage.files import read_bytes, walk, write_bytes
from corpora.storage.strict_json import StructureError, parse_json
from corpora.tokenizers.load import load_tokenizer
from corpora.tokenizers.protocol import Tokenizer

RECIPE, TOKENIZER, SUMMARY, VALIDATION = "recipe.json", "tokenizer", "summary.json", "validation.json"
STARTS, METRICS = "starts.jsonl", "metrics.jsonl"
CHECKSUM = "crc32"


class DamagedError(Exception):
    """A file of a run differs from what was written."""


def seal(values: Mapping[str, Any]) -> dict[str, Any]:
    """Add the checksum to JSON values."""
    return {**values, CHECKSUM: _checksum(json.loads(json.dumps(values)))}


def seal_line(values: Mapping[str, Any]) -> bytes:
    """Make a line of a file of JSON lines."""
    return json.dumps(seal(values)).encode() + b"\n"


def write_sealed(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON file with its checksum, atomically."""
    write_bytes(str(path), json.dumps(seal(values), indent=1).encode() + b"\n")


def read_sealed(path: Path) -> dict[str, Any]:
    """Read a file of ``write_sealed``, without the checksum."""
    try:
        return unseal(parse_json(read_bytes(str(path))))
    except FileNotFoundError:
        raise DamagedError("is missing") from None
    except (OSError, StructureError) as error:
        raise DamagedError(f"cannot be read ({error})") from None


def unseal(values: Any) -> dict[str, Any]:
    """Check and remove the checksum of JSON values."""
    if not isinstance(values, dict) or CHECKSUM not in values:
        raise DamagedError("has no checksum")
    values = dict(values)
    if values.pop(CHECKSUM) != _checksum(values):
        raise DamagedError("differs from its checksum")
    return values


def _checksum(values: Any) -> int:
    return crc32(json.dumps(values, sort_keys=True).encode())


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file of JSON lines, without damaged and incomplete lines; none without a file."""
    return parse_lines(_lines(path))


def parse_lines(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the objects in JSON lines, without damaged and incomplete ones."""
    for line in lines:
        try:
            values = json.loads(line)
            yield unseal(values) if CHECKSUM in values else dict(values)
        except (ValueError, TypeError, DamagedError):
            continue


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True) if path.is_file() else []


def content_facts(data: bytes) -> dict[str, Any]:
    """Make the entry of a file with this content: its bytes and CRC-32."""
    return {"bytes": len(data), CHECKSUM: crc32(data)}


def tokenizer_contents(artefact: str) -> dict[str, bytes]:
    """Read the files of an artefact's tokenizer, by name."""
    folder = f"{artefact.rstrip('/')}/{TOKENIZER}"
    return {path.removeprefix(folder).lstrip("/"): read_bytes(path) for path in walk(folder)}


def keep_recipe(values: Mapping[str, Any], tokenizer: Mapping[str, bytes], directory: Path) -> None:
    """Write ``recipe.json`` and the files of the tokenizer, in place of others, into a run's directory."""
    for path in (directory / TOKENIZER).rglob("*"):
        if path.is_file() and str(path.relative_to(directory / TOKENIZER)) not in tokenizer:
            path.unlink()
    for name, data in tokenizer.items():
        write_bytes(str(directory / TOKENIZER / name), data)
    facts = {name: content_facts(data) for name, data in tokenizer.items()}
    starts = sum(1 for _ in read_lines(directory / STARTS))
    write_sealed(directory / RECIPE, {"recipe": values, "tokenizer": facts, "starts": starts})


def keep_start(start: Mapping[str, Any], directory: Path) -> None:
    """Add a line to ``starts.jsonl``, and delete the summary, because only a finished run has one."""
    (directory / SUMMARY).unlink(missing_ok=True)
    lines = [*read_lines(directory / STARTS), start]
    write_bytes(str(directory / STARTS), b"".join(map(seal_line, lines)))


def read_tokenizer(directory: Path, fingerprint: str | None = None) -> Tokenizer | None:
    """Load the tokenizer of a run; None if the run has none, because its data was not an artefact."""
    faults = list(_recipe_and_tokenizer_faults(directory))
    tokenizer = None
    if not faults and (directory / TOKENIZER).is_dir():
        try:
            tokenizer = load_tokenizer(str(directory / TOKENIZER))
        except FarspanError as error:
            faults = [str(error)]
        if tokenizer and fingerprint not in (None, tokenizer.fingerprint):
            faults = [f"{TOKENIZER}/ has fingerprint {tokenizer.fingerprint[:12]}, the model {str(fingerprint)[:12]}"]
    if faults:
        raise FarspanError(
            f"{directory}: {faults[0]}; copy the run again, or continue it, which writes these files again"
        )
    return tokenizer


def find_faults(directory: Path, step: int, fingerprint: str | None) -> list[str]:
    """Describe the faults in a run's files beside its checkpoints."""
    faults = [*_recipe_and_tokenizer_faults(directory), *_faults_of_lines(directory, step)]
    for name, needed in (
        (SUMMARY, _is_finished(directory, step)),
        (VALIDATION, False),
        ("checkpoints/run.json", True),
        ("checkpoints/best.json", False),
    ):
        if needed or (directory / name).exists():
            try:
                read_sealed(directory / name)
            except DamagedError as error:
                faults.append(f"{name} {error}")
    if not faults:
        try:
            read_tokenizer(directory, fingerprint)
        except FarspanError as error:
            faults.append(str(error))
    return faults


def _is_finished(directory: Path, step: int) -> bool:
    """Return True if the newest checkpoint, of update ``step``, is the last that the last start was to reach."""
    steps = [start.get("steps") for start in read_lines(directory / STARTS)][-1:]
    return steps == [step]


def _recipe_and_tokenizer_faults(directory: Path) -> Iterator[str]:
    try:
        stored: Mapping[str, Mapping[str, Any]] = read_sealed(directory / RECIPE).get("tokenizer", {})
    except DamagedError as error:
        yield f"{RECIPE} {error}"
        return
    files = {str(path.relative_to(directory / TOKENIZER)): path for path in (directory / TOKENIZER).rglob("*")}
    for name in sorted(stored.keys() | {name for name, path in files.items() if path.is_file()}):
        if name not in stored:
            yield f"{TOKENIZER}/{name} is no file of the run"
        elif name not in files:
            yield f"{TOKENIZER}/{name} is missing"
        elif content_facts(files[name].read_bytes()) != stored[name]:
            yield f"{TOKENIZER}/{name} differs from its checksum"


def _faults_of_lines(directory: Path, step: int) -> Iterator[str]:
    try:
        starts = read_sealed(directory / RECIPE).get("starts", 1)
    except DamagedError:
        starts = 1
    logged: dict[str, list[dict[str, Any]]] = {STARTS: [], METRICS: []}
    for name, values in logged.items():
        for number, line in enumerate(_lines(directory / name), 1):
            try:
                values.append(unseal(json.loads(line)))
            except (ValueError, DamagedError):
                if name == METRICS and not line.endswith(b"\n"):
                    continue  # the run was killed while it wrote the line
                yield f"{name}: line {number} is damaged"
    if len(logged[STARTS]) < starts:
        yield f"{STARTS}: holds {len(logged[STARTS])} of {starts} starts"
    updates = {line.get("step") for line in logged[METRICS] if "loss" in line}
    if lacking := [number for number in range(1, step + 1) if number not in updates]:
        yield f"{METRICS}: has no line for update {lacking[0]}" + (
            f" and {len(lacking) - 1} others" * (len(lacking) > 1)
        )


_RECORD, _LOCK = "run.json", "run.lock"


class RunLock:
    """A lock on a run's directory, held until ``release`` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        self._directory, self.start = directory, 0  # processes that have started the run, this one included
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock: BinaryIO = (directory / _LOCK).open("ab")
        except OSError as error:
            raise FarspanError(
                f"the run's directory cannot be written to ({error}); set run.directory to a writable folder"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            holder = read_record(directory)
            raise FarspanError(
                f"{directory} is in use by process {holder.get('process', '?')} on {holder.get('host', '?')}; stop it "
                "first, or set run.directory to a new folder"
            ) from None
        except OSError:
            pass  # no locks here

    def begin(self) -> int:
        """Raise the start counter, so that an older process still running stops at its next checkpoint."""
        self.start = read_record(self._directory).get("start", 0) + 1
        record = {"start": self.start, "process": os.getpid(), "host": socket.gethostname()}
        write_sealed(self._directory / _RECORD, record)
        return self.start

    def require_newest(self) -> None:
        """Check that no later process has started."""
        newest = read_record(self._directory)
        if newest.get("start") != self.start:
            raise FarspanError(
                f"{self._directory} was taken over by process {newest.get('process', '?')} on "
                f"{newest.get('host', '?')}, which started later; this process stops"
            )

    def release(self) -> None:
        """Release the lock."""
        self._lock.close()


def read_record(directory: Path) -> dict[str, Any]:
    """Read the record of the newest start; empty if there is none or it is unreadable."""
    try:
        record = read_sealed(directory / _RECORD)
    except DamagedError:
        return {}
    return record if type(record.get("start")) is int else {}
