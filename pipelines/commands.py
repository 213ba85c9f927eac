"""The subcommands: what each takes and which job it starts; heavy imports wait for the one that is run."""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Callable
from typing import Any

from corpora.errors import FarspanError

FORMATTER = argparse.RawDescriptionHelpFormatter


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="farspan",
        formatter_class=FORMATTER,
        description="Data and training for long-context text-to-text models.",
        epilog="""\
from raw text to a trained model:
  farspan tokenizer train --kind byte-level-bpe --vocab-size 32000 --input 'text/*.jsonl' --output tokenizer
  farspan documents --input wiki='text/*.jsonl' --tokenizer tokenizer --held-out 0.01 --output documents
  farspan corpus random --documents documents --sequence-length 16384 --output corpus
  farspan mask span --preset bart_ls_mixed --corpus corpus --output masks
  farspan show masks
  farspan train bart_ls_base --set data.corpus=corpus --set data.masks=masks --set run.directory=run
""",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _tokenizer(commands)
    _documents(commands)
    _corpus(commands)
    _mask(commands)
    _looking(commands)
    _train(commands)
    return parser


def _command(commands: Any, name: str, summary: str, run: Callable[[Any], None], example: str = "") -> Any:
    parser = commands.add_parser(
        name, help=summary, description=summary, formatter_class=FORMATTER, epilog=example, allow_abbrev=False
    )
    parser.set_defaults(run=run)
    return parser


def _job_flags(parser: Any, shards_of: str = "shards") -> None:
    parser.add_argument("--output", required=True, metavar="DIR", help="folder to make; an unfinished one is resumed")
    parser.add_argument("--seed", type=int, default=0, help="of every random choice (default 0)")
    parser.add_argument("--compression", choices=["lz4", "zstd"], help="of shards; default none, for memory mapping")
    engine = parser.add_argument_group("engine", "Beam's own flags are passed on unchanged")
    engine.add_argument("--workers", type=int, default=0, help="processes (default: by the size of the job)")
    engine.add_argument(
        "--runner", default="embedded", help="embedded (default), or any Beam runner, e.g. PortableRunner, FlinkRunner"
    )


def _run_job(options: Any, job: Any) -> None:
    from pipelines.engine import Engine
    from pipelines.job import run_job
    from pipelines.stats import summary

    manifest = run_job(job, Engine(options.runner, options.workers, options.beam_flags))
    print(f"{options.output}: {summary(manifest)}")


def _tokenizer(commands: Any) -> None:
    group = commands.add_parser("tokenizer", help="train a tokenizer").add_subparsers(required=True, metavar="COMMAND")
    parser = _command(group, "train", "Train a tokenizer on raw text.", _run_tokenizer)
    parser.add_argument("--kind", choices=["byte-level-bpe", "sentencepiece"], default="byte-level-bpe")
    parser.add_argument("--vocab-size", type=int, default=32_000, help="default: 32000")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder to make")
    _reading(parser)


def _reading(parser: Any) -> None:
    parser.add_argument(
        "--input",
        action="append",
        required=True,
        metavar="[NAME=]PATTERN",
        help="file, folder or quoted glob, on any file system Beam knows; NAME is the source in ids; repeatable",
    )
    parser.add_argument("--format", help="jsonl, parquet, arrow, text, lines or huggingface (default: by file name)")
    parser.add_argument("--text-field", default="text", help="field or column with the text (default: text)")
    parser.add_argument("--id-field", help="field with an id of your own (default: the record's place)")
    parser.add_argument("--max-record-bytes", type=int, default=64 << 20, help="longer records are rejected")


def _read_options(options: Any) -> Any:
    from corpora.readers import ReadOptions

    return ReadOptions(
        format=options.format,
        text_field=options.text_field,
        id_field=options.id_field,
        max_record_bytes=options.max_record_bytes,
    )


def _run_tokenizer(options: Any) -> None:
    from pipelines.tokenizer_training import train

    print(train(options.kind, options.vocab_size, options.input, _read_options(options), options.output))


def _documents(commands: Any) -> None:
    parser = _command(
        commands,
        "documents",
        "Tokenise raw text once, for every corpus built from it.",
        _run_documents,
        "example:\n  farspan documents --input c4='c4/en/*.json.gz' --tokenizer t5.model --output docs",
    )
    _reading(parser)
    parser.add_argument("--tokenizer", required=True, help="SentencePiece model, tokenizer.json, folder or hub name")
    parser.add_argument("--sentences", default="nupunkt", help="nupunkt (default), nltk, spacy or spacy:MODEL")
    parser.add_argument("--held-out", type=float, default=0.0, help="share of documents kept apart (default 0)")
    parser.add_argument(
        "--error-budget", type=float, default=0.01, help="tolerated share of bad records (default 0.01)"
    )
    parser.add_argument("--task-bytes", type=int, default=32 << 20, help="raw bytes a task and shard (default 32 MiB)")
    _job_flags(parser)


def _run_documents(options: Any) -> None:
    from pipelines import documents

    read = _read_options(options)
    job = documents.plan(
        documents.Documents(
            tuple(documents.Input.parse(text, read) for text in options.input),
            options.output,
            options.tokenizer,
            options.sentences,
            options.held_out,
            options.seed,
            options.task_bytes,
            options.error_budget,
            options.compression,
        )
    )
    _run_job(options, job)


def _corpus(commands: Any) -> None:
    group = commands.add_parser("corpus", help="build sequences from documents")
    kinds = group.add_subparsers(required=True, metavar="KIND")
    parser = _command(kinds, "random", "Shuffle documents globally and concatenate them.", _run_random)
    parser.add_argument("--documents", required=True, metavar="DIR", help="folder made by `farspan documents`")
    parser.add_argument("--sequence-length", type=int, required=True, help="encoder positions of a sequence")
    parser.add_argument("--split", choices=["train", "held-out"], default="train", help="default: train")
    parser.add_argument("--shards", type=int, default=0, help="default: one for each 16 million tokens")
    parser.add_argument("--whole-documents", action="store_true", help="never split a document")
    parser.add_argument("--drop-ragged-tail", action="store_true", help="leave out a shard's last, unfilled sequence")
    parser.add_argument("--min-document-tokens", type=int, default=1, help="leave out shorter documents")
    parser.add_argument("--room-per-sequence", type=int, default=2, help="positions kept for begin and end (default 2)")
    parser.add_argument("--room-per-document", type=int, default=1, help="positions kept for separators (default 1)")
    _job_flags(parser)


def _run_random(options: Any) -> None:
    from corpora.concatenation import Packing
    from pipelines import random_concat

    packing = Packing(
        options.sequence_length,
        options.room_per_sequence,
        options.room_per_document,
        not options.whole_documents,
        options.drop_ragged_tail,
        options.min_document_tokens,
    )
    job = random_concat.plan(
        random_concat.RandomCorpus(
            options.documents, options.output, packing, options.seed, options.split, options.shards, options.compression
        )
    )
    _run_job(options, job)


def _mask(commands: Any) -> None:
    parser = _command(commands, "mask", "Choose what an objective hides in each sequence.", _run_mask)
    parser.add_argument("objective", help="an installed objective, e.g. span")
    parser.add_argument("--corpus", required=True, metavar="DIR", help="folder made by `farspan corpus`")
    parser.add_argument("--preset", help="options of a published system, e.g. t5, bart_ls, bart_ls_mixed")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override an option; repeatable"
    )
    _job_flags(parser)


def _run_mask(options: Any) -> None:
    from pipelines import mask

    chosen = dict(assignment(text) for text in options.set)
    job = mask.plan(
        mask.Masking(
            options.corpus,
            options.output,
            options.objective,
            options.preset,
            chosen,
            options.seed,
            options.compression,
        )
    )
    _run_job(options, job)


def assignment(text: str) -> tuple[str, Any]:
    """``key=value`` with the value in TOML, or a bare word."""
    key, given, value = text.partition("=")
    if not given or not key:
        raise FarspanError(f"--set {text}: give KEY=VALUE")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value


def _looking(commands: Any) -> None:
    parser = _command(commands, "show", "Show one row: documents, hidden text, source and target.", _run_show)
    parser.add_argument("artefact", help="folder of a corpus or mask set")
    parser.add_argument("--row", type=int, default=0, help="default 0")
    parser.add_argument("--corpus", help="where a mask set's corpus lies now (default: where its manifest says)")
    parser.add_argument("--width", type=int, default=0, help="characters to show of each text, 0 for all (default)")

    parser = _command(commands, "stats", "Sizes, waste and lengths of an artefact.", _run_stats)
    parser.add_argument("artefact", nargs="+", help="folder of documents, corpus or mask set")
    parser.add_argument("--figure", metavar="FILE.png", help="draw the length distributions")
    parser.add_argument("--json", action="store_true", help="numbers for a program")

    parser = _command(commands, "verify", "Check checksums, structure and meaning of artefacts.", _run_verify)
    parser.add_argument("artefact", nargs="+", help="folders")
    parser.add_argument("--corpus", help="where a mask set's corpus lies now (default: where its manifest says)")

    parser = _command(commands, "finalize", "Write the manifest of a job whose driver went away.", _run_finalize)
    parser.add_argument("output", help="folder of the job")
    parser.add_argument(
        "--error-budget", type=float, default=0.01, help="tolerated share of bad records (default 0.01)"
    )


def _run_show(options: Any) -> None:
    from pipelines.show import show

    show(options.artefact, options.row, options.corpus, options.width)


def _run_stats(options: Any) -> None:
    from pipelines.stats import draw_lengths, print_stats, statistics

    found = [statistics(folder) for folder in options.artefact]
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        print_stats(found)
    if options.figure:
        draw_lengths(options.artefact, options.figure)
        print(f"figure: {options.figure}")


def _run_verify(options: Any) -> None:
    from pipelines.verify import verify_artefact

    damaged = 0
    for folder in options.artefact:
        problems = verify_artefact(folder, options.corpus)
        damaged += bool(problems)
        for problem in problems:
            print(f"{folder}: {problem}")
        if not problems:
            print(f"{folder}: sound")
    if damaged:
        raise FarspanError(f"{damaged} of {len(options.artefact)} artefacts are damaged; copy or make them again")


def _run_finalize(options: Any) -> None:
    from pipelines.job import finalize
    from pipelines.stats import summary

    print(f"{options.output}: {summary(finalize(options.output, options.error_budget))}")


def _train(commands: Any) -> None:
    parser = _command(
        commands,
        "train",
        "Train a model from a corpus and a mask set; an interrupted run resumes.",
        _run_train,
        "example:\n  farspan train bart_ls_base --set data.corpus=corpus --set data.masks=masks",
    )
    parser.add_argument("recipe", help="a packaged recipe by name, or a TOML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key; repeatable")


def _run_train(options: Any) -> None:
    from trainer.recipe import load_recipe
    from trainer.run import train

    train(load_recipe(options.recipe, options.set))
