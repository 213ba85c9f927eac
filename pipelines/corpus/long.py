"""``farspan corpus long``: mix sources by weight, cut long documents into sequences, concatenate short ones.

Stage *spill* partitions documents into buckets by keyed hash; stage *pack* takes the bucket's part of each source's
share, pass by pass, and writes one shard. The shares are computed before work starts, from the counts of the documents
artefact, or from the documents' lengths if windows overlap, because tokens are then written more than once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError, nearest
from corpora.keyed import id_keys, make_key, select_share
from corpora.options import record_options
from corpora.packing.assemble import assemble_cuts
from corpora.packing.mixture import Mixture, Source, mix
from corpora.packing.windows import arrange, take
from corpora.schemas.corpus import DocumentUse
from corpora.storage.arrow_views import booleans
from pipelines.corpus.mixture_file import MixtureFile, MixtureSource, read_mixture_file
from pipelines.corpus.options import LongCorpus
from pipelines.documents import job as documents_job
from pipelines.documents.options import Documents
from pipelines.engine.artefacts import Parent, absolute, tokens_of_split
from pipelines.engine.job import Job
from pipelines.shuffle.corpus_shard import Packed, corpus_job, shard_count
from pipelines.shuffle.spill import Bucket, Pieces, place_by_id, refuse_repeated

BUCKET_TOKENS = 4  # maximum tokens of a bucket, as a multiple of a shard's; a shard may use only a few of them


def jobs(options: LongCorpus) -> Iterator[Job]:
    """Yield the job of the documents, if the mixture file has inputs; after it has run, the job of the corpus."""
    documents = plan_documents(options)
    if documents is not None:
        yield documents
    yield plan(options)


def plan_documents(options: LongCorpus) -> Job | None:
    """Declare the job that makes the documents from the inputs of the mixture file; None without inputs.

    It runs before ``plan``. Documents are the same for every seed and compression of the corpus.
    """
    settings = read_mixture_file(options.recipe)
    inputs = settings.inputs(options.recipe)
    if not inputs:
        return None
    if options.split == "held-out" and not settings.held_out:
        raise FarspanError(f"{options.recipe}: --split held-out, but no document would be held out; add held_out = ...")
    return documents_job.plan(
        Documents(
            inputs=inputs,
            output=_documents_folder(options, settings),
            tokenizer=settings.tokenizer or "",
            sentences=settings.sentences,
            held_out=settings.held_out,
        )
    )


def _documents_folder(options: LongCorpus, settings: MixtureFile) -> str:
    if settings.documents is not None:
        folder = absolute(settings.documents)
        if folder == absolute(options.output):
            raise FarspanError(
                f"--output {options.output}: is the folder of the documents that the mixture file names; give another"
            )
        return folder
    if all(source.input is None for source in settings.sources.values()):
        raise FarspanError(
            f"{options.recipe}: neither documents nor inputs; add documents = ... of `farspan documents`, "
            "or an input to each source"
        )
    return absolute(options.output) + ".documents"


def plan(options: LongCorpus) -> Job:
    """Check mixture file and options, compute the shares and declare the tasks; the documents exist already."""
    settings = read_mixture_file(options.recipe)
    settings.inputs(options.recipe)
    documents = Parent.read(_documents_folder(options, settings), "farspan.documents")
    read = {name: _tokens(options, documents, name, one.source or name) for name, one in settings.sources.items()}
    lengths = Bands.of(make_key(options.seed, "keep", {"split": options.split}), options.recipe, settings)
    mixture = _mixture(options, settings, documents, read, lengths)
    packing, windows = settings.rows, settings.windows
    in_documents = sum({lengths.bands[name].source: tokens for name, tokens in read.items()}.values())
    shards = shard_count(options.shards, max(mixture.tokens, in_documents // BUCKET_TOKENS))
    config = {
        "builder": "long",
        **record_options(packing),
        "mixture": _describe_mixture(mixture, settings),
        "short_documents": settings.short_documents,
        "stride": windows.stride,
        "overlap": windows.overlap,
        **record_options(options, shards=shards),
    }
    key = make_key(options.seed, "mixture", {"split": options.split})
    use = DocumentUse(
        truncated=True,
        overlap=windows.overlap,
        max_uses=math.ceil(max(share.epochs for share in mixture.shares.values())),
        left_out="beyond their source's share",
    )
    return corpus_job(
        options,
        documents,
        partial(_place_sources, key, options.split == "held-out", lengths),
        partial(_pack_long, settings, lengths, {name: share.epochs for name, share in mixture.shares.items()}, key),
        packing=packing,
        shards=shards,
        tokens=mixture.tokens,
        config=config,
        use=use,
        tokens_read=in_documents + mixture.tokens,
    )


def _mixture(
    options: LongCorpus, settings: MixtureFile, documents: Parent, read: Mapping[str, int], lengths: Bands
) -> Mixture:
    """Compute the share of each source; ``read`` holds the tokens of one pass over each, short documents included."""
    sizes = available = read
    if settings.windows.overlap or lengths.limited:
        sizes, available = _count_written(documents, options.split == "held-out", settings, lengths)
    for name, band in lengths.bands.items():
        if not available[name]:
            most = "" if band.most is None else f" and max_tokens {band.most:,}"
            raise FarspanError(
                f"{options.recipe}: [sources.{name}]: none of its {read[name]:,} tokens is in a document of "
                f"min_tokens {band.least:,}{most}, and keep_probability {band.keep:g} keeps none of the shorter ones; "
                "change these"
            )
    try:
        return mix(
            {name: Source(available[name], s.weight, s.epochs, sizes[name]) for name, s in settings.sources.items()},
            settings.tokens,
            settings.temperature,
            settings.on_cap,
        )
    except FarspanError as error:
        raise FarspanError(f"{options.recipe}: {error}") from error


def _tokens(options: LongCorpus, documents: Parent, table: str, source: str) -> int:
    """Count the tokens of one pass over a source."""
    folder, counts = documents.folder, documents.manifest.counts
    if source not in counts:
        known = sorted(counts)
        raise FarspanError(
            f"{options.recipe}: [sources.{table}]: {folder} has no such source{nearest(source, known)}; "
            f"it has {', '.join(known)}"
        )
    count = counts[source]
    if not count["written"]:
        raise FarspanError(
            f"{options.recipe}: [sources.{table}]: {folder} has no document of it: of {count['read']:,} read, "
            f"{count['filtered']:,} were filtered (below min_characters or min_tokens, or without text) and "
            f"{count['rejected']:,} rejected (see {folder}/rejects); leave the source out, or make other documents"
        )
    tokens = tokens_of_split(count, options.split)
    if not tokens:
        raise FarspanError(
            f"{options.recipe}: [sources.{table}]: {folder} has no {options.split} document of it; "
            "leave the source out, or make the documents again with another held-out share"
        )
    return tokens


def _count_written(
    documents: Parent, held_out: bool, settings: MixtureFile, lengths: Bands
) -> tuple[dict[str, int], dict[str, int]]:
    """Count the tokens in windows of one pass over each source: of all documents, and of those kept.

    Of a source that several tables divide, each counts its own lengths.
    """
    whole, written = dict.fromkeys(settings.sources, 0), dict.fromkeys(settings.sources, 0)
    for shard in documents.shards:
        for batch in shard.batches():
            names = np.asarray(batch.column("source").to_pylist(), object)
            of_split = booleans(batch.column("held_out")) == held_out
            sizes = np.diff(batch.column("tokens").offsets.to_numpy())  # (rows,)
            tokens, kept = settings.windows.written(sizes), lengths.keeps(names, batch)
            tables = lengths.tables(names, sizes)
            for number, (name, band) in enumerate(lengths.bands.items()):
                divided = settings.sources[name].source is not None
                chosen = of_split & (tables == number if divided else names == band.source)
                whole[name] += int(tokens[chosen].sum())
                written[name] += int(tokens[of_split & kept & (tables == number)].sum())
    return whole, written


def _describe_mixture(mixture: Mixture, settings: MixtureFile) -> dict[str, object]:
    """The ``mixture`` entry of the manifest: request, shares, and the ``reason`` if these differ from the request."""
    return {
        "tokens": settings.tokens,
        "temperature": "inf" if settings.temperature == math.inf else settings.temperature,  # JSON has no infinity
        "on_cap": settings.on_cap,
        "sources": {
            name: {
                "weight": float(share.weight),
                "max_epochs": settings.sources[name].epochs,
                "available": share.available,
                "tokens": share.tokens,
                "epochs": float(share.epochs),
                **_describe_lengths(settings.sources[name]),
            }
            for name, share in mixture.shares.items()
        },
        "reason": mixture.reason or None,
    }


def _describe_lengths(source: MixtureSource) -> dict[str, object]:
    described: dict[str, object] = {} if source.source is None else {"source": source.source}
    if source.min_tokens:
        described |= {"min_tokens": source.min_tokens, "keep_probability": source.keep_probability}
    return described | ({} if source.max_tokens is None else {"max_tokens": source.max_tokens})


class Band(NamedTuple):
    """The documents of a table of the mixture file."""

    source: str
    least: int  # fewest tokens
    most: int | None  # most tokens
    keep: float  # probability with which documents of fewer than ``least`` tokens are kept

    @property
    def range(self) -> tuple[int, float]:
        """Fewest and most tokens of documents that may be kept."""
        return 0 if self.keep else self.least, math.inf if self.most is None else self.most


@dataclass(frozen=True)
class Bands:
    """The division of documents among tables by source and length."""

    key: bytes  # of the draws of short documents, by document id
    bands: Mapping[str, Band]  # by the tables' names, in their order

    @classmethod
    def of(cls, key: bytes, file: str, settings: MixtureFile) -> Bands:
        """Check that no document belongs to two tables."""
        bands = {
            name: Band(one.source or name, one.min_tokens, one.max_tokens, one.keep_probability)
            for name, one in sorted(settings.sources.items())
        }
        for (name, one), (second, other) in combinations(bands.items(), 2):
            if one.source == other.source and max(one.range[0], other.range[0]) <= min(one.range[1], other.range[1]):
                raise FarspanError(
                    f"{file}: [sources.{name}] and [sources.{second}] share lengths of source {one.source!r}; give "
                    "them min_tokens and max_tokens that do not overlap"
                )
        return cls(key, bands)

    @property
    def limited(self) -> bool:
        """True if any table has documents of some lengths only."""
        return any(band.least or band.most is not None for band in self.bands.values())

    def tables(self, names: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Return the number of each document's table, ``(n,)`` int64; -1 for none.

        ``names``, ``tokens``: sources and numbers of tokens of the documents, ``(n,)``.
        """
        tables = np.full(len(names), -1)
        for number, band in enumerate(self.bands.values()):
            least, most = band.range
            tables[(names == band.source) & (tokens >= least) & (tokens <= most)] = number
        return tables

    def keeps(self, names: np.ndarray, batch: pa.RecordBatch) -> np.ndarray:
        """Return ``(n,)`` bool for the n documents of a batch; ``names``: ``(n,)``, their sources."""
        tokens = np.diff(batch.column("tokens").offsets.to_numpy())
        tables = self.tables(names, tokens)
        kept = tables >= 0
        for number, band in enumerate(self.bands.values()):
            short = np.flatnonzero((tables == number) & (tokens < band.least))
            ids = batch.column("document_id").take(pa.array(short)).to_pylist()
            kept[short] = select_share(self.key, ids, band.keep)
        return kept


def _place_sources(key: bytes, held_out: bool, lengths: Bands, index: int, batch: pa.RecordBatch) -> Pieces:
    """Place every document of the sources in the split by its keyed hash, if its length is kept."""
    read = booleans(batch.column("held_out")) == held_out
    names = np.asarray(batch.column("source").to_pylist(), object)
    read &= np.isin(names, np.array([band.source for band in lengths.bands.values()], object))
    return place_by_id(key, batch, read, read & lengths.keeps(names, batch))


def _pack_long(
    settings: MixtureFile, lengths: Bands, epochs: Mapping[str, Fraction], key: bytes, bucket: Bucket
) -> Packed:
    """Take a bucket's part of every source's share, and put its sequences in keyed order.

    ``epochs`` are the passes over each table's documents; the keys of passes and of the order of rows derive from
    ``key``, that of the corpus.
    """
    refuse_repeated(bucket)
    ids, windows = bucket.document_ids.to_pylist(), settings.windows
    sources = lengths.tables(bucket.sources.astype(str), bucket.lengths)  # (documents,)
    passes = [epochs[name] for name in lengths.bands]

    def derived_key(purpose: str, number: int) -> bytes:
        return make_key(number, purpose, {"mixture": key.hex()})

    taken = take(bucket.lengths, sources, passes, lambda number: id_keys(derived_key("pass", number), ids), windows)
    cuts = arrange(taken, sources, settings.rows, windows, settings.short_documents == "across")
    cuts = cuts.shuffle(derived_key("rows", 0), ids)
    rows = assemble_cuts(bucket.document_ids, bucket.tokens, bucket.sentence_starts, cuts)
    return Packed(rows, cuts.documents)
