"""The command of a card, given to farspan, is taken and means the options that the manifest records."""

from __future__ import annotations

import shlex

import pytest

from corpora.storage.manifest import Manifest
from pipelines.cards.made_by import command_of
from pipelines.commands import build_parser
from tests.artefacts import tokenizer_entry


def made(format: str, config: dict, seed: int = 0) -> str:
    command = command_of(Manifest(format, config, seed, 64, tokenizer_entry()))
    assert command is not None
    return command


def options(command: str) -> list:
    """The options that the command line means."""
    typed, rest = build_parser().parse_known_args(shlex.split(command)[1:])
    assert rest == []
    return typed.chosen.decode(vars(typed))


def test_documents():
    read = {"format": "jsonl", "text_field": "body", "id_field": None, "min_tokens": 5, "preprocess": ["squeeze"]}
    config = {
        "builder": "documents",
        "sources": ["a", "it's b"],
        "read": {"a": {**read, "min_characters": 3}, "it's b": {**read, "min_characters": 4}},
        "sentences": {"name": "nupunkt", "version": "0.6.0"},
        "held_out": 0.01,
        "task_bytes": 32 << 20,
        "license": "cc0-1.0",
        "language": ["en", "de"],
        "compression": None,
    }
    command = made("farspan.documents", {**config, "read": {"a": {"format": "jsonl", "min_tokens": 5}}}, seed=7)
    raw, found = options(command)
    assert raw.input == ("a=RAW", "it's b=RAW")
    assert (raw.read.format, raw.read.min_tokens) == ("jsonl", 5)
    assert (found.held_out, found.seed, found.license, found.language) == (0.01, 7, "cc0-1.0", ("en", "de"))
    assert "--sentences" not in command
    assert "--task-bytes" not in command
    assert "--min-characters" not in made("farspan.documents", config)  # sources differ: no flag says both


def test_a_corpus_with_its_flags_of_other_names():
    config = {"builder": "random", "sequence_length": 512, "packing": "whole-documents", "drop_ragged_tail": True,
              "split": "train", "shards": 3, "room_per_sequence": 2}  # fmt: skip
    command = made("farspan.corpus", config, seed=5)
    assert command == (
        "farspan corpus random --documents DOCUMENTS --output CORPUS --sequence-length 512 "
        "--packing whole-documents --drop-ragged-tail --seed 5 --shards 3"
    )
    (found,) = options(command)
    assert (found.packing.packing, found.packing.drop_ragged_tail, found.shards) == ("whole-documents", True, 3)


@pytest.mark.parametrize("builder", ["related", "linked", "long"])
def test_other_corpora(builder: str):
    config = {"builder": builder, "sequence_length": 512, "neighbours": {"manifest_sha256": "ab" * 32}}
    command = made("farspan.corpus", config)
    assert command.startswith(f"farspan corpus {builder} ")
    assert ("--neighbours NEIGHBOURS" in command) == (builder != "long")
    options(command)


def test_masks_say_what_differs_from_the_objectives_defaults():
    from objectives.api.protocol import load_objective

    usual = dict(load_objective("span").options)
    config = {"objective": "span", "options": {**usual, "density": 0.3}, "draws": 4, "tools": {}}
    command = made("farspan.masks", config)
    assert command == "farspan mask span --set density=0.3 --corpus CORPUS --output MASKS --draws 4"
    (found,) = options(command)
    assert (found.objective, dict(found.options), found.draws) == ("span", {"density": 0.3}, 4)
    assert "--scorer SCORER" in made("farspan.masks", {**config, "tools": {"scorer": "x"}})


def test_vectors_clusters_neighbours_pairs():
    vectors = made("farspan.vectors", {"name": "facebook/contriever", "pooling": "cls", "threads": 1})
    assert vectors == "farspan embed --pooling cls --documents DOCUMENTS --output VECTORS"
    clusters = made("farspan.clusters", {"centroids": 16, "spherical": False}, seed=1)
    assert clusters == "farspan cluster --centroids 16 --euclidean --seed 1 --vectors VECTORS --output CLUSTERS"
    neighbours = made("farspan.neighbours", {"k": 10, "probes": 32})
    pairs = made("farspan.pairs", {"sources": ["q"], "split": "draw", "read": {"q": {"format": "scrolls"}}})
    for command in (vectors, clusters, neighbours, pairs):
        options(command)


def test_what_no_command_makes_has_none():
    assert command_of(Manifest("farspan.corpus", {"builder": "mine"}, 0, 64, tokenizer_entry())) is None
