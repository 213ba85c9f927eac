"""``farspan pairs --probe``: long texts with questions, made from tokenised documents.

Two jobs: the texts become documents in ``OUTPUT.documents``, then the questions become pairs about them. Both make
examples by the same pure function of (materials, key, id), so a pair needs nothing of its document.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.keyed import make_key
from corpora.options import list_changed, record_options
from corpora.readers.raw_tasks import RawPair
from corpora.schemas.documents import DocumentSet, documents_schema
from corpora.schemas.pairs import PAIR_TOTALS, PairSet, add_pair_totals, pairs_schema
from corpora.schemas.sequences import token_dtype
from corpora.storage.manifest import Receipt
from corpora.storage.manifest_file import manifest_sha256
from corpora.storage.ragged import Ragged
from corpora.storage.shards import MOST_SHARDS, write_shard
from corpora.tokenizers.load import load_tokenizer_of
from objectives.probes import load_probe
from objectives.probes.example import DEPTHS, WHOLE, Example, Materials, Request, Text, list_words
from objectives.probes.ruler import fitting_questions
from pipelines.documents.shard import DocumentsShard
from pipelines.engine.artefacts import Parent, absolute, declare_derived_job
from pipelines.engine.folder import check_output
from pipelines.engine.job import Job, Report, Task, make_sharded_stage, shard_paths
from pipelines.pairs.job import plan_raw
from pipelines.pairs.merge import draw_splits
from pipelines.pairs.options import Pairs, Probing, RawPairs
from pipelines.pairs.tokenize import ROWS_PER_BATCH, ReadPair, tokenize_pairs

AROUND = 8
"""Positions of a source that are left for special tokens and the text between question and document."""
_READ_DOCUMENTS, _READ_TOKENS = 4096, 512  # documents, and tokens of each, that words are taken from
_TASK_BYTES = 16 << 20  # of a task's tokens in memory


def jobs(raw: RawPairs, probing: Probing, options: Pairs) -> Job | Iterator[Job]:
    """Plan the job for raw files, or the two jobs for probes."""
    if not probing.probe:
        if changed := list_changed(probing):
            raise FarspanError(f"{changed[0]}: is for probes; give --probe NAME, or leave it out")
        if not raw.input:
            raise FarspanError("no pairs are named; give --input FILES, or --probe NAME to make them")
        return plan_raw(raw, options)
    if changed := list_changed(raw):
        raise FarspanError(f"{changed[0]}: is for pairs that are read; leave it out, or --probe")
    return _probe_jobs(probing, options)


def _probe_jobs(probing: Probing, options: Pairs) -> Iterator[Job]:
    output, documents = absolute(options.output), Parent.read(options.documents, "farspan.documents")
    check_output(output)
    maker = Maker(probing, options.seed, documents.folder)
    _check(maker, documents, options)
    folder = f"{output}.documents"
    size = max(min(options.task_bytes, _TASK_BYTES) // 4, 1)
    ranges = list(maker.ranges(size))
    if len(ranges) > MOST_SHARDS:
        raise FarspanError(
            f"--examples {probing.examples}: make {len(ranges):,} shards, over {MOST_SHARDS:,}; give fewer"
        )
    config = {"builder": "probes", "sources": sorted(map(_source, probing.probe)), **record_options(probing)}
    others = {}
    if probing.questions:
        others = {"questions": absolute(probing.questions)}
        config["questions_sha256"] = manifest_sha256(others["questions"])

    def job(place: str, parent: Parent, work: Any, format: str, rows: int, config: dict[str, Any]) -> Job:
        name, sizes = format.removeprefix("farspan."), [stop - first for _, _, first, stop in ranges]
        paths = shard_paths(place, len(ranges))
        stage = make_sharded_stage(name, work, "examples", sizes, shard=paths, range=ranges)
        return declare_derived_job(
            place,
            parent,
            [stage],
            format=format,
            config=config,
            seed=options.seed,
            rows_per_batch=rows,
            work_bytes=4 * sum(length * (stop - first) for _, length, first, stop in ranges),
            others=others,
        )

    texts = partial(_write_texts, maker, options.compression)
    yield job(folder, documents, texts, "farspan.documents", DocumentsShard.ROWS_PER_BATCH, config)
    drawn = {} if options.split == "draw" else {"validation": None, "test": None}
    config = {**config, **record_options(options, without=["task_bytes", "task_files"], **drawn)}
    pairs = partial(_write_questions, maker, options)
    made = Parent.read(folder, "farspan.documents")
    yield job(output, made, pairs, "farspan.pairs", ROWS_PER_BATCH, config)


def _check(maker: Maker, documents: Parent, options: Pairs) -> None:
    """Check the options against the documents, and make an example of the least and the greatest length."""
    probing, tokens = maker.probing, documents.manifest.totals["tokens"]
    probes = {name: load_probe(name) for name in probing.probe}
    if any(probe.essay for probe in probes.values()) and tokens < max(probing.lengths):
        raise FarspanError(
            f"{documents.folder}: {tokens:,} tokens are too few for --lengths {max(probing.lengths)}; give more "
            "documents, or smaller lengths"
        )
    if probing.depths and not any(probe.placed for probe in probes.values()):
        raise FarspanError(f"--depths: the facts of {', '.join(probes)} stand at drawn places; leave it out")
    asking = [name for name in probes if name.startswith("ruler:qa_")]
    if bool(asking) != bool(probing.questions):
        raise FarspanError(
            f"--probe {asking[0]}: needs pairs about the documents; give --questions DIR, made by `farspan pairs`"
            if asking
            else "--questions: is for ruler:qa_1 and ruler:qa_2; leave it out"
        )
    if asking and options.split == "draw":
        raise FarspanError(f"--split draw: the questions of {asking[0]} have splits; leave it out, or name one for all")
    for name in probes:
        for length in {min(probing.lengths), max(probing.lengths)}:
            if name in asking and not len(
                fitting_questions(maker.materials.questions, length, name.endswith("2"))  # type: ignore[arg-type]
            ):
                subject = "several documents" if name.endswith("2") else "one document"
                raise FarspanError(
                    f"{probing.questions}: no question about {subject} fits into three quarters of {length:,} tokens, "
                    f"with its documents, for {name}; give other questions, or larger --lengths"
                )
            maker.text(name, length, 0)


def _source(probe: str) -> str:
    return probe.replace(":", "_")


@lru_cache(maxsize=2)
def read_materials(documents: str, questions: str | None) -> Materials:
    """Read the words of documents, spread evenly over them, and open given questions; once per process."""
    opened, tokenizer = DocumentSet(documents, verify=True), load_tokenizer_of(documents)
    rows = np.unique(np.linspace(0, len(opened) - 1, min(len(opened), _READ_DOCUMENTS)).astype(np.int64))
    tokens = Ragged.from_arrow(opened.take(rows).combine_chunks().column("tokens").chunk(0))
    words = list_words(tokenizer, (tokenizer.decode(tokens[row][:_READ_TOKENS]) for row in range(len(tokens))))
    return Materials(tokenizer, words, opened, PairSet(questions, documents, verify=True) if questions else None)


@dataclass(frozen=True)
class Maker:
    """Makes the examples of a job from the ``documents`` in a folder."""

    probing: Probing
    seed: int
    documents: str

    @property
    def materials(self) -> Materials:
        return read_materials(self.documents, self.probing.questions)

    def ranges(self, tokens: int) -> Iterator[tuple[str, int, int, int]]:
        """Yield probe, length, first number and number after the last of each task, of about so many tokens."""
        for name in self.probing.probe:
            for length in self.probing.lengths:
                step = max(tokens // length, 1)
                for first in range(0, self.probing.examples, step):
                    yield name, length, first, min(first + step, self.probing.examples)

    def example(self, name: str, length: int, number: int) -> Example:
        """Make an example without its text."""
        depths = self.probing.depths or DEPTHS
        place = depths[number % len(depths)] * WHOLE // 100
        request = Request(
            self.materials, make_key(self.seed, "probes"), f"{name}:{length}:{number}", number, length, place
        )
        return load_probe(name).make(request)

    def text(self, name: str, length: int, number: int) -> Text:
        """Make the text of an example."""
        example = self.example(name, length, number)
        query = len(self.materials.tokenizer.encode([example.query]).values)
        try:
            return example.text(self.materials, length - query - AROUND)
        except FarspanError as error:
            raise FarspanError(f"--probe {name}, --lengths {length}: {error}") from None

    def document_ids(self, name: str, length: int, first: int, stop: int) -> list[str]:
        return [f"{_source(name)}:{length}:{number}" for number in range(first, stop)]

    def first_row(self, name: str, length: int) -> int:
        """Row of the first document of a probe and length."""
        before = self.probing.probe.index(name) * len(self.probing.lengths) + self.probing.lengths.index(length)
        return before * self.probing.examples


def _write_texts(maker: Maker, compression: str | None, task: Task, report: Report) -> Receipt:
    """Write a shard of documents: the texts of a range of examples."""
    name, length, first, stop = task.payload["range"]
    size = maker.materials.tokenizer.vocab_size
    schema, source = documents_schema(size), _source(name)
    with DocumentsShard.create(task.payload["shard"], size, compression) as shard:
        ids = maker.document_ids(name, length, first, stop)
        texts = []
        for number in range(first, stop):
            texts.append(maker.text(name, length, number))
            report(number - first)
        tokens = Ragged.from_rows([text.tokens for text in texts], token_dtype(size))
        starts = Ragged.from_rows([text.starts for text in texts], np.int32)
        columns = [
            pa.array(ids),
            pa.array([source] * len(ids)),
            pa.nulls(len(ids), pa.int64()),
            pa.array([False] * len(ids)),
            tokens.to_arrow(schema.field("tokens").type),
            starts.to_arrow(pa.list_(pa.int32())),
        ]
        shard.write(pa.record_batch(columns, schema=schema))
    counts = {source: {"read": len(ids), **shard.counts[source]}}
    return Receipt(task.name, shard.info, shard.totals, counts)


def _write_questions(maker: Maker, options: Pairs, task: Task, report: Report) -> Receipt:
    """Write a shard of pairs: the questions of a range of examples."""
    name, length, first, stop = task.payload["range"]
    tokenizer = maker.materials.tokenizer
    exact = load_probe(name).placed
    ids = maker.document_ids(name, length, first, stop)
    rows = np.arange(first, stop) + maker.first_row(name, length)
    examples = [maker.example(name, length, number) for number in range(first, stop)]
    read = [
        ReadPair(
            RawPair(
                pair_id=one,
                documents=(one,),
                query=example.query,
                targets=example.targets,
                references=tuple(example.answers),
                split=example.split or "test",
                attributes={"probe": name, **example.attributes(length, exact)},
            ),
            *("", _source(name), "", ""),
            [one],
        )
        for one, example in zip(ids, examples, strict=True)
    ]
    found, _ = tokenize_pairs(read, dict(zip(ids, rows.tolist(), strict=True)), options.split, tokenizer)
    schema = pairs_schema(tokenizer.vocab_size)
    batch = found.select(schema.names)
    if options.split == "draw":
        shares = (options.seed, options.validation, options.test)
        splits = draw_splits(Ragged(rows, np.arange(len(rows) + 1)), ids, *shares)
        batch = batch.set_column(schema.get_field_index("split"), schema.field("split"), splits)
    totals = dict.fromkeys(PAIR_TOTALS, 0)
    add_pair_totals(totals, batch)
    with write_shard(task.payload["shard"], schema, ROWS_PER_BATCH, options.compression) as (writer, info):
        writer.write(batch)
    totals |= {"documents": len(ids), "documents_in_several_splits": 0}
    return Receipt(task.name, tuple(info), totals, {_source(name): {"read": len(ids), "written": len(ids)}})
