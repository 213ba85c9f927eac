"""Raw text: ``farspan tokenizer train`` and ``farspan documents``."""

from __future__ import annotations

from typing import Any

from pipelines.commands.shared import command, job_flags, start


def add_tokenizer(commands: Any) -> None:
    group = commands.add_parser("tokenizer", help="train a tokenizer").add_subparsers(required=True, metavar="COMMAND")
    parser = command(group, "train", "Train a tokenizer on raw text.", _run_tokenizer)
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
    parser.add_argument(
        "--format",
        help="jsonl, parquet, arrow, text, lines, huggingface (default: by file name); as published: books3, stories, "
        "realnews, mediasum, opensubtitles, pg19, newshead, multi-news",
    )
    parser.add_argument(
        "--text-field",
        default="text",
        help="field or column with the text, or a cluster's list of texts (default: text)",
    )
    parser.add_argument("--id-field", help="field with an id of your own (default: the record's place)")
    parser.add_argument("--cluster-field", help="field that names a record's cluster of related documents")
    parser.add_argument("--separator", metavar="LINE", help="between two stories of --format stories (default: blank)")
    parser.add_argument("--min-characters", type=int, default=0, help="leave out shorter texts")
    parser.add_argument("--min-tokens", type=int, default=0, help="leave out texts of fewer tokens")
    parser.add_argument(
        "--preprocess",
        action="append",
        default=[],
        metavar="STEP",
        help="strip-gutenberg, join-lines, squeeze-blank or strip-subtitle-marks; repeatable, in order",
    )
    parser.add_argument("--max-record-bytes", type=int, default=64 << 20, help="longer records are rejected")


def _read_options(options: Any) -> Any:
    from corpora.options import utf8
    from corpora.readers import ReadOptions

    return ReadOptions(
        format=options.format,
        text_field=utf8(options.text_field),
        id_field=options.id_field and utf8(options.id_field),
        max_record_bytes=options.max_record_bytes,
        cluster_field=options.cluster_field and utf8(options.cluster_field),
        min_characters=options.min_characters,
        min_tokens=options.min_tokens,
        preprocess=tuple(options.preprocess),
        separator=options.separator and utf8(options.separator),
    )


def _run_tokenizer(options: Any) -> None:
    from pipelines.documents.tokenizer import train

    print(train(options.kind, options.vocab_size, options.input, _read_options(options), options.output))


def add_documents(commands: Any) -> None:
    parser = command(
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
        "--error-budget",
        type=float,
        default=0.01,
        help="tolerated share of bad records, of damaged files and of lost bytes, each for itself (default 0.01)",
    )
    parser.add_argument("--task-bytes", type=int, default=32 << 20, help="raw bytes a task and shard (default 32 MiB)")
    parser.add_argument("--task-files", type=int, default=2048, help="files of a task and shard at most (default 2048)")
    job_flags(parser)


def _run_documents(options: Any) -> None:
    from pipelines.documents.job import Input, plan
    from pipelines.documents.options import Documents

    read = _read_options(options)
    job = plan(
        Documents(
            inputs=tuple(Input.parse(text, read) for text in options.input),
            output=options.output,
            tokenizer=options.tokenizer,
            sentences=options.sentences,
            held_out=options.held_out,
            seed=options.seed,
            task_bytes=options.task_bytes,
            task_files=options.task_files,
            error_budget=options.error_budget,
            compression=options.compression,
        )
    )
    start(options, job)
