"""Mixtures of raw text: documents are made from the inputs of a mixture file, and from nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from corpora.errors import FarspanError
from corpora.storage.manifest_file import read_manifest
from corpora.storage.origins import find_parent
from corpora.verify.artefact import verify
from pipelines.corpus.long import plan, plan_documents
from pipelines.corpus.options import LongCorpus
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from tests.artefacts import small_tokenizer
from tests.pipelines.corpus.mixture_files import write_mixture_file


def test_documents_are_made_from_the_inputs_of_a_recipe(tmp_path):
    small_tokenizer().save(str(tmp_path / "tokenizer"))
    (tmp_path / "talk").mkdir()
    for number in range(3):
        (tmp_path / "talk" / f"{number}.txt").write_text("the quick brown fox jumps over lazy dogs. " * 40)
    lines = [{"body": f"seven wizards observe strange lights {number}. " * (1 + number)} for number in range(20)]
    (tmp_path / "news.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    recipe = write_mixture_file(
        tmp_path,
        None,
        f'tokenizer = "{tmp_path}/tokenizer"\nheld_out = 0.2',
        sequence_length=64,
        talk=f'input = "{tmp_path}/talk"\nformat = "text"',
        news=f'input = "{tmp_path}/news.jsonl"\ntext_field = "body"\nmin_characters = 200',
    )
    options = LongCorpus(recipe=recipe, output=str(tmp_path / "corpus"))
    with pytest.raises(FarspanError, match=r"corpus\.documents: no farspan artefact"):
        plan(options)
    made = run_job(plan_documents(options), Engine(workers=1))
    assert set(made.counts) == {"news", "talk"}
    assert made.counts["news"]["filtered"] > 0
    manifest = run_job(plan(options), Engine(workers=1))
    assert verify(str(tmp_path / "corpus")) == []
    assert find_parent(str(tmp_path / "corpus")) == str(tmp_path / "corpus.documents")
    for source, count in manifest.counts.items():
        assert count["tokens"] == made.counts[source]["tokens"] - made.counts[source]["held_out_tokens"]
    run_job(plan_documents(options), Engine(workers=1))  # finished: nothing to do


def test_the_command_makes_the_documents_and_the_corpus(run, tmp_path):
    small_tokenizer().save(str(tmp_path / "tokenizer"))
    (tmp_path / "news.jsonl").write_text(json.dumps({"text": "seven wizards observe strange lights. " * 50}) + "\n")
    source = f'input = "{tmp_path}/news.jsonl"\nepochs = 2'
    recipe = write_mixture_file(tmp_path, None, f'tokenizer = "{tmp_path}/tokenizer"', sequence_length=64, news=source)
    status, out, _ = run("corpus", "long", recipe, "--output", tmp_path / "corpus", "--workers", "1")
    assert status == 0
    assert [line.split(":")[0] for line in out.splitlines()] == [f"{tmp_path}/corpus.documents", f"{tmp_path}/corpus"]
    assert verify(str(tmp_path / "corpus")) == []
    assert read_manifest(str(tmp_path / "corpus")).counts["news"]["uses"] == 2


@pytest.mark.parametrize(
    ("text", "line", "options", "message"),
    [
        ("", "weight = 0.7", {}, r"sum to 1\.4"),
        ("", "weight = -0.7", {}, r"'news': weight -0\.7"),
        ("", "epochs = -1", {}, r"'news': epochs -1\.0"),
        ("tokens = -5", "", {}, "tokens -5: give a positive budget"),
        ("temperature = 0", "", {}, r"temperature 0\.0: must be above 0"),
        (
            "temperature = 2",
            "weight = 0.5",
            {},
            r"temperature 2\.0 and weights \(of news, talk\): give one or the other",
        ),
        ('on_cap = "redistribute"', "", {}, "without a budget"),
        ("", "", {"shards": -1}, "--shards -1"),
        ("", "", {"split": "held-out"}, "--split held-out, but no document would be held out"),
        ('documents = "{folder}/corpus"', "", {}, "is the folder of the documents that the mixture file names"),
    ],
)
def test_nothing_is_tokenised_for_a_corpus_that_cannot_be(tmp_path, run, text, line, options, message):
    small_tokenizer().save(str(tmp_path / "tokenizer"))
    (tmp_path / "text.txt").write_text("the quick brown fox")
    table = f'input = "{tmp_path}/text.txt"\n{line}'
    text = f'tokenizer = "{tmp_path}/tokenizer"\n' + text.format(folder=tmp_path)
    recipe = write_mixture_file(tmp_path, None, text, news=table, talk=table)
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    status, _, err = run("corpus", "long", recipe, "--output", tmp_path / "corpus", *flags)
    assert status == 1
    assert re.search(message, err)
    assert not (tmp_path / "corpus").exists()
    assert not (tmp_path / "corpus.documents").exists()


def test_a_source_of_which_everything_was_filtered_says_so(tmp_path):
    small_tokenizer().save(str(tmp_path / "tokenizer"))
    (tmp_path / "news.jsonl").write_text('{"text": "the quick brown fox"}\n' * 3 + '{"title": "lazy dogs"}\n')
    source = f'input = "{tmp_path}/news.jsonl"\nmin_characters = 100'
    recipe = write_mixture_file(tmp_path, None, f'tokenizer = "{tmp_path}/tokenizer"', news=source)
    options = LongCorpus(recipe=recipe, output=str(tmp_path / "corpus"))
    run_job(replace(plan_documents(options), error_budget=1.0), Engine(workers=1))
    with pytest.raises(FarspanError, match=r"no document of it: of 4 read, 3 were filtered .* and 1 rejected"):
        plan(options)
