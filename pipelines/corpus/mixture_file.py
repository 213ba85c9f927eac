"""The mixture file of ``farspan corpus long``: sources, their shares, and options of packing."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal

from corpora.errors import FarspanError
from corpora.options import Flag
from corpora.packing.mixture import check_request
from corpora.packing.options import Packing
from corpora.packing.windows import Windows
from corpora.readers import ReadOptions
from corpora.settings import parse
from corpora.storage.files import read_user_toml
from pipelines.documents.inputs import Input

SHARES = ("weight", "epochs")
# keys that apply to finished documents too
MIXING = (*SHARES, "source", "min_tokens", "max_tokens", "keep_probability")
MAKING = ("tokenizer", "sentences", "held_out")  # keys that apply only if documents are made


@dataclass(frozen=True, kw_only=True)
class MixtureSource(ReadOptions):
    """A table ``[sources.NAME]``: options of reading raw files, and the source's share of the mixture.

    Attributes:
        input: raw files, as for ``farspan documents --input``; given for all sources or for none.
        weight: share of the mixture; given for all sources or for none.
        epochs: maximum number of passes over the source.
        source: source of the documents, if it is not the table's name: several tables can divide one source by length.
        max_tokens: documents with more tokens are left out; None for no limit.
        keep_probability: probability with which a document of fewer than ``min_tokens`` tokens is kept.
    """

    input: str | None = None
    weight: float | None = None
    epochs: float = 1.0
    source: str | None = None
    max_tokens: Annotated[int | None, Flag(least=1)] = None
    keep_probability: Annotated[float, Flag(least=0, most=1)] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_probability and not self.min_tokens:
            raise FarspanError(f"keep_probability {self.keep_probability} has no effect without min_tokens; add it")
        if self.source is not None and self.input is not None:
            raise FarspanError(f"source {self.source!r} names finished documents, and input raw files; leave one out")
        if self.max_tokens is not None and self.max_tokens < self.min_tokens:
            raise FarspanError(f"max_tokens {self.max_tokens} is below min_tokens {self.min_tokens}; raise it")

    def read_options(self) -> ReadOptions:
        read = ReadOptions(**{one.name: getattr(self, one.name) for one in fields(ReadOptions)})
        return replace(read, min_tokens=0) if self.keep_probability else read


@dataclass(frozen=True, kw_only=True)
class MixtureFile:
    """A mixture file, in TOML; paths are relative to the current folder, not to the file.

    Attributes:
        sequence_length: encoder positions of a sequence.
        sources: name, as in the documents artefact unless the table has ``source`` -> the source.
        documents: folder of the documents; they are made from the sources' inputs if there are any.
        tokenizer: tokenizer of the documents to make.
        sentences, held_out: as the flags of ``farspan documents``.
        tokens: budget (default: as many as the epochs allow).
        temperature: instead of weights: shares in proportion to ``tokens ** (1 / temperature)``.
        on_cap: ``stop`` when the first source reaches its ``epochs``, or ``redistribute`` to the others.
        packing: ``concatenate`` or ``best-fit``, which cuts no document that fits, as ``farspan corpus random
            --packing``.
        short_documents: share a sequence ``within`` their source or ``across`` sources.
        stride: tokens from one window of a long document to the next; 0 for no overlap. Budget and weights
            count a token once for each window that holds it.
        room_per_sequence, room_per_document: positions reserved for tokens that rendering adds.
    """

    sequence_length: int
    sources: dict[str, MixtureSource]
    documents: str | None = None
    tokenizer: str | None = None
    sentences: str = "nupunkt"
    held_out: float = 0.0
    tokens: int | None = None
    temperature: float | None = None
    on_cap: Literal["stop", "redistribute"] = "stop"
    packing: Literal["concatenate", "best-fit"] = "concatenate"
    short_documents: Literal["within", "across"] = "within"
    stride: int = 0
    room_per_sequence: int = 2
    room_per_document: int = 1

    def __post_init__(self) -> None:
        Windows.of(self.rows, self.stride)  # refuses a stride that leaves gaps

    @property
    def rows(self) -> Packing:
        """The capacity of a sequence, and how it is filled."""
        return Packing(
            sequence_length=self.sequence_length,
            packing=self.packing,
            room_per_sequence=self.room_per_sequence,
            room_per_document=self.room_per_document,
        )

    @property
    def windows(self) -> Windows:
        return Windows.of(self.rows, self.stride)

    def inputs(self, file: str) -> tuple[Input, ...]:
        """The raw files of all sources; none if the mixture takes finished documents."""
        patterns = {name: source.input for name, source in self.sources.items() if source.input is not None}
        if not patterns:
            return ()
        if len(patterns) < len(self.sources):
            missing = next(name for name in self.sources if name not in patterns)
            raise FarspanError(f"{file}: [sources.{missing}] has no input, others have; give it one, or leave all out")
        if self.tokenizer is None:
            raise FarspanError(f"{file}: sources have inputs, so documents will be made: add tokenizer = ...")
        try:
            return tuple(
                Input.parse(f"{name}={pattern}", self.sources[name].read_options())
                for name, pattern in patterns.items()
            )
        except FarspanError as error:
            raise FarspanError(f"{file}: {error}") from error


def read_mixture_file(file: str) -> MixtureFile:
    """Read and check a mixture file."""
    mixture = parse(MixtureFile, read_user_toml(file), file)
    if not mixture.sources:
        raise FarspanError(f"{file}: no source; add a table [sources.NAME] for each")
    sources = {}
    for name, table in mixture.sources.items():
        if not name or ":" in name or "/" in name:
            raise FarspanError(f"{file}: [sources.{name}]: a source's name is part of ids; leave ':' and '/' out of it")
        sources[name] = parse(MixtureSource, table, f"{file}: [sources.{name}]")
    mixture = replace(mixture, sources=sources)
    _refuse_idle(mixture, file)
    weights, epochs = ({name: getattr(source, key) for name, source in sources.items()} for key in SHARES)
    try:
        check_request(weights, epochs, mixture.tokens, mixture.temperature, mixture.on_cap)
    except FarspanError as error:
        raise FarspanError(f"{file}: {error}") from error
    return mixture


def _refuse_idle(mixture: MixtureFile, file: str) -> None:
    """Refuse keys about making documents in a mixture file that uses finished ones."""
    if mixture.documents is None or any(source.input is not None for source in mixture.sources.values()):
        return
    cure = "drop it, or give every source an input to make the documents from"
    for key in MAKING:
        if getattr(mixture, key) != getattr(MixtureFile, key):
            raise FarspanError(f"{file}: {key} has no effect with documents and no input; {cure}")
    defaults = MixtureSource()
    for name, source in mixture.sources.items():
        for key in (one.name for one in fields(source) if one.name not in MIXING):
            if getattr(source, key) != getattr(defaults, key):
                raise FarspanError(f"{file}: [sources.{name}] {key} has no effect with documents and no input; {cure}")
