"""Mixture files of `farspan corpus long`: their keys, refusals, and documents made from the inputs that they name."""

import json
import os
import re
from dataclasses import fields, replace

import pytest

from corpora.errors import FarspanError
from corpora.packing.mixture import Source, mix
from corpora.storage.manifest_file import find_parent, read_manifest
from corpora.verify.artefact import verify
from pipelines.corpus.long import plan, plan_documents
from pipelines.corpus.mixture_file import MixtureFile, MixtureSource, read_mixture_file
from pipelines.corpus.options import LongCorpus
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from tests.artefacts import small_tokenizer, write_mixture_file

WHOLE = """
sequence_length = 128
documents = "documents"
tokens = 1000
[sources.books]
weight = 0.75
[sources.news]
weight = 0.25
epochs = 2
"""


@pytest.fixture
def recipe(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "mixture.toml"
        path.write_text(text)
        return str(path)

    return write


def test_a_recipe_is_read_with_its_defaults(recipe):
    found = read_mixture_file(recipe(WHOLE))
    assert (found.sequence_length, found.tokens, found.on_cap, found.short_documents) == (128, 1000, "stop", "within")
    assert {name: (source.weight, source.epochs) for name, source in found.sources.items()} == {
        "books": (0.75, 1.0),
        "news": (0.25, 2),
    }
    assert (found.rows.capacity, found.windows.overlap) == (126, 0)
    assert found.inputs("mixture.toml") == ()


def test_sources_with_inputs_are_found(recipe, tmp_path):
    (tmp_path / "a.txt").write_text("One.")
    text = f'sequence_length = 128\ntokenizer = "t"\n[sources.a]\ninput = "{tmp_path}/a.txt"\nmin_tokens = 3\n'
    (item,) = read_mixture_file(recipe(text)).inputs("mixture.toml")
    assert (item.source, item.read.min_tokens) == ("a", 3)


def test_a_name_that_cannot_be_part_of_an_id_is_refused(recipe):
    with pytest.raises(FarspanError, match=r"mixture\.toml: \[sources\.a/b\]: .*leave ':' and '/' out of it"):
        read_mixture_file(recipe(WHOLE.replace("[sources.books]", '[sources."a/b"]')))


EXAMPLE = os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples", "long_mixture.toml")


def test_the_example_recipe_explains_every_key():
    with open(EXAMPLE) as file:
        lines = file.read().split("\n[sources.books3]")
    for text, kind in zip(lines, (MixtureFile, MixtureSource), strict=True):
        keys = set(re.findall(r"^(?:# )?(\w+) = ", text, re.MULTILINE))
        assert keys == {one.name for one in fields(kind)} - {"sources", "pairs"}  # fields of pairs are those of a job


@pytest.mark.parametrize("instead", [{}, {"weight": "# weight", "# temperature": "temperature"}])
def test_what_the_example_shows_in_comments_can_be_said(tmp_path, instead):
    with open(EXAMPLE) as file:
        text = file.read()
    text = re.sub(r"^# (?!temperature|source)(\w+ = )", r"\1", text, flags=re.MULTILINE)
    for before, after in instead.items():
        text = re.sub(rf"^{before} = ", f"{after} = ", text, flags=re.MULTILINE)
    (tmp_path / "mixture.toml").write_text(text)
    recipe = read_mixture_file(str(tmp_path / "mixture.toml"))
    assert recipe.tokens == 2_000_000_000
    assert recipe.sources["stories"].separator == "-----"
    assert (recipe.temperature is None) == (not instead)


def test_the_example_recipe_has_the_published_shares():
    recipe = read_mixture_file(EXAMPLE)
    millions = {"books3": 26_293, "stories": 7_958, "realnews": 6_834, "opensubtitles": 3_839, "mediasum": 974}
    mixture = mix({name: Source(millions[name] * 10**6, s.weight, s.epochs) for name, s in recipe.sources.items()})
    assert {name: float(share.epochs) for name, share in mixture.shares.items()} == pytest.approx(
        dict.fromkeys(millions, 1.0), rel=1e-3
    )


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
