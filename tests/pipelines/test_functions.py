"""Commands as functions: the keywords are the flags, and a call does what the command does."""

import argparse
import inspect
from pathlib import Path
from typing import Literal

import pytest

from corpora.errors import FarspanError
from corpora.storage.manifest import Manifest
from pipelines import functions
from pipelines.commands import build_parser
from tests.artefacts import digests, make_corpus, make_documents

FUNCTIONS = [getattr(functions, name) for name in functions.FUNCTIONS]


def flags(*command: str) -> set[str]:
    """Attributes that parsing sets for a command, other than the parser's own."""
    parser = build_parser()
    for word in command:
        (group,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        parser = group.choices[word]
    parser.declare()
    return {action.dest for action in parser._actions if not isinstance(action, argparse._HelpAction)}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_keyword_is_explained(function):
    described = function.__doc__.partition("Args:\n")[2]
    parameters = inspect.signature(function).parameters
    hidden = {"beam_flags", "kind", "format"}
    assert [name for name in parameters if f"    {name}: " not in described and name not in hidden] == []


def test_keywords_are_the_flags_of_the_command():
    signature = inspect.signature(functions.corpus_random)
    assert set(signature.parameters) - {"beam_flags"} == flags("corpus", "random") - {"estimate"}
    assert signature.parameters["sequence_length"].default is inspect.Parameter.empty
    assert signature.parameters["sequence_length"].annotation is int
    assert signature.return_annotation is Manifest
    assert signature.parameters["split"].annotation == Literal["train", "held-out"]
    assert signature.parameters["packing"].default == "concatenate"
    objective, *others = inspect.signature(functions.mask).parameters.values()
    assert (objective.name, objective.kind) == ("objective", objective.POSITIONAL_OR_KEYWORD)
    assert {other.kind for other in others} == {objective.KEYWORD_ONLY}


def test_a_call_makes_what_the_command_makes(tmp_path: Path, run):
    folder = make_documents(str(tmp_path / "documents"))
    manifest = functions.corpus_random(
        documents=Path(folder), sequence_length=256, packing="whole-documents", output=tmp_path / "called"
    )
    flags = (
        "--documents",
        folder,
        "--sequence-length",
        256,
        "--packing",
        "whole-documents",
        "--output",
        tmp_path / "typed",
    )
    assert run("corpus", "random", *flags)[0] == 0
    assert [shard.sha256 for shard in manifest.shards] == digests(tmp_path / "typed")
    assert digests(tmp_path / "called") == digests(tmp_path / "typed")


def test_a_dictionary_is_set(tmp_path: Path):
    corpus = make_corpus(str(tmp_path / "corpus"))
    options = {"density": 0.3, "mean_span_lengths": [3, 10], "separator": None}
    manifest = functions.mask("span", set=options, corpus=corpus, output=tmp_path / "masks")
    assert {name: manifest.config["options"][name] for name in options} == options


def test_wrong_keywords_and_values(tmp_path: Path):
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'lenght'"):
        functions.corpus_random(documents="d", output="o", sequence_length=9, lenght=3)
    with pytest.raises(TypeError, match=r"corpus_random\(\) got .* argument 'document' \(did you mean 'documents'\?\)"):
        functions.corpus_random(document="d", output="o", sequence_length=9)
    with pytest.raises(TypeError, match="missing a required argument: 'documents'"):
        functions.corpus_random(output="o", sequence_length=9)
    with pytest.raises(FarspanError, match="--fliink_master is a flag of neither farspan nor Beam"):
        functions.corpus_random(
            documents="d", output=tmp_path / "o", sequence_length=9, beam_flags=["--fliink_master=x"]
        )
    with pytest.raises(FarspanError, match="no farspan artefact"):
        functions.corpus_random(documents=tmp_path / "none", output=tmp_path / "o", sequence_length=9)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"sequence_length": "many"}, "sequence_length is 'many'; a value of type int is needed"),
        ({"sequence_length": 9.5}, r"sequence_length is 9\.5; a value of type int is needed"),
        (
            {"split": "held_out"},
            r"split is 'held_out' \(did you mean 'held-out'\?\); choose one of 'train', 'held-out'",
        ),
        ({"drop_ragged_tail": "no"}, "drop_ragged_tail is 'no'; a value of type bool is needed"),
        ({"workers": "2"}, "workers is '2'; a value of type int is needed"),
        ({"log_format": "xml"}, "log_format is 'xml'; choose one of 'text', 'json'"),
    ],
)
def test_a_value_of_another_kind_is_refused(tmp_path: Path, keywords, message):
    given = {"documents": "d", "output": tmp_path / "o", "sequence_length": 9, **keywords}
    with pytest.raises(FarspanError, match=message):
        functions.corpus_random(**given)


def test_a_dictionary_names_inputs(tmp_path: Path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.jsonl").write_text('{"text": "A sentence. Another one."}\n')
    tokenizer = Path(make_documents(str(tmp_path / "others"))) / "tokenizer"
    manifest = functions.documents(
        input={"mine": tmp_path / "text"}, tokenizer=tokenizer, output=tmp_path / "documents"
    )
    assert list(manifest.counts) == ["mine"]
