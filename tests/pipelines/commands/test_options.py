"""Options of commands as they are typed, and what they refuse."""

import argparse
from typing import Any

import pytest

from corpora.errors import FarspanError
from corpora.packing.options import Packing
from corpora.readers import ReadOptions
from corpora.settings import make
from pipelines.commands import build_parser
from pipelines.corpus.options import LinkedCorpus, LongCorpus, RandomCorpus, RelatedCorpus
from pipelines.documents.options import Documents, RawText, TokenizerTraining
from pipelines.evaluation.options import Evaluate, Evaluation, Submission
from pipelines.inspect.options import Check, Choice, Show, Stats, Verify
from pipelines.masks.options import Masking
from pipelines.options import Generating
from pipelines.pages.options import View
from pipelines.pairs.options import Pairs
from tests.pipelines.typed import typed


@pytest.mark.parametrize("command", ["documents", "pairs", "finalize"])
def test_the_error_budget_has_one_meaning_in_all_commands(command, capsys):
    with pytest.raises(SystemExit):
        build_parser().parse_args([command, "--help"])
    assert "each is counted separately (default: 0.01)" in " ".join(capsys.readouterr().out.split())


NEEDED = "--documents d --output o --sequence-length 512"
SAME: dict[str, Any] = {"documents": "d", "output": "o", "packing": Packing(sequence_length=512)}
GENERATING: dict[str, Any] = {"model": "run", "pairs": "p", "output": "o"}
VALUES: dict[str, Any] = {"objective": "span", "preset": "t5", "options": {"density": 0.3, "separator": None}}
TYPED: list[tuple[str, Any]] = [
    (NEEDED, RandomCorpus(**SAME)),
    (f"{NEEDED} --neighbours n --leftovers leave-out", LinkedCorpus(neighbours="n", leftovers="leave-out", **SAME)),
    (f"{NEEDED} --min-similarity 0.5 --split held-out", RelatedCorpus(min_similarity=0.5, split="held-out", **SAME)),
    ("mixture.toml --output o --seed 7", LongCorpus(recipe="mixture.toml", output="o", seed=7)),
    ("span --corpus c --output o", Masking(objective="span", corpus="c", output="o")),
    (
        "span --corpus c --output o --preset t5 --set density=0.3 --set separator=null --draws 4 --seed 2",
        Masking(corpus="c", output="o", draws=4, seed=2, **VALUES),
    ),
    ("run --pairs p --output o", Generating(**GENERATING)),
    (
        "run --pairs p --output o --set query=none --set source_length=64 --generation beams=4",
        Generating(**GENERATING, options={"query": "none", "source_length": 64}, generation={"beams": 4}),
    ),
    (
        "a b.json --metrics f1 --metrics rouge:t5 --by hard --bins 3 --json table.json",
        Evaluate(
            predictions=("a", "b.json"),
            evaluation=Evaluation(metrics=("f1", "rouge:t5"), by=("hard",), bins=3),
            json="table.json",
        ),
    ),
    ("qasper=a b --output s.csv --partial", Submission(predictions=("qasper=a", "b"), output="s.csv", partial=True)),
    (
        "corpus --row 3 --objective span --preset t5 --set density=0.3 --set separator=null --draw 1 --width 80",
        Show(artefact="corpus", row=3, width=80, choice=Choice(draw=1, **VALUES)),
    ),
    ("pairs --task led", Show(artefact="pairs", choice=Choice(task="led"))),
    ("a b c", Stats(artefact=("a", "b", "c"))),
    ("a b c", Verify(artefact=("a", "b", "c"))),
    ("span --corpus c --rows 5", Check(objective="span", corpus="c", rows=5)),
    (
        "--input a=x/*.jsonl --input y.txt --format lines --text-field body",
        RawText(input=("a=x/*.jsonl", "y.txt"), read=ReadOptions(format="lines", text_field="body")),
    ),
    ("--output o --tokenizer t --held-out 0.1", Documents(output="o", tokenizer="t", held_out=0.1)),
    (
        "--output o --input x --kind sentencepiece --vocab-size 500",
        TokenizerTraining(
            output="o", text=RawText(input=("x",), read=ReadOptions()), kind="sentencepiece", vocab_size=500
        ),
    ),
    (
        "--documents d --output o --split draw --validation 0.2 --test 0 --seed 3",
        Pairs(documents="d", output="o", split="draw", validation=0.2, test=0.0, seed=3),
    ),
]


@pytest.mark.parametrize(("line", "options"), TYPED, ids=lambda part: part if isinstance(part, str) else "")
def test_a_line_of_flags_is_read_into_options(line, options):
    """Repeated flags, values of objectives and tasks, and the same flags for the same options of all corpora."""
    assert typed(type(options), line) == options


@pytest.mark.parametrize("kind", [LinkedCorpus, RelatedCorpus])
@pytest.mark.parametrize("flag", ["--split-documents x", "--drop-ragged-tail"])
def test_corpora_of_several_documents_have_no_flags_for_cutting_them(kind, flag):
    with pytest.raises((argparse.ArgumentError, SystemExit)):
        typed(kind, f"{NEEDED} --neighbours n {flag}")


@pytest.mark.parametrize("kind", [LinkedCorpus, RelatedCorpus])
def test_corpora_of_several_documents_refuse_a_policy_given_in_python(kind):
    packing = Packing(sequence_length=512, packing="powers-of-two")
    with pytest.raises(FarspanError, match=r"packing 'powers-of-two': has no effect in a (linked|related) corpus"):
        kind(documents="d", output="o", packing=packing)


def test_mask_sets_follow_one_flag():
    words = ["view", "corpus", "--masks", "a", "b", "--objective", "t5", "--objective", "pegasus", "--masks", "c"]
    options = make(View, vars(build_parser().parse_args(words)))
    assert options.artefact == ("corpus",)
    assert options.masks == ("a", "b", "c")
    assert options.objective == ("t5", "pegasus")
    assert make(View, vars(build_parser().parse_args(["view", "corpus"]))).masks == ()


def test_rows_are_numbers():
    assert View(artefact=("a",), rows="17,3,3").chosen_rows == (3, 17)
    assert View(artefact=("a",)).chosen_rows == ()
    for rows in ("1,x", "-1"):
        with pytest.raises(FarspanError, match=f"--rows {rows}: give row numbers"):
            View(artefact=("a",), rows=rows)


def test_plot_takes_several_runs():
    typed = build_parser().parse_args(["plot", "a", "b", "--over", "tokens", "--smooth", "5"])
    (options,) = typed.chosen.decode(vars(typed))
    assert (options.run, options.figure, options.over, options.smooth) == (("a", "b"), "curves.svg", "tokens", 5)


@pytest.mark.parametrize("words", [["plot"], ["runs"], ["plot", "a", "--over", "time"]])
def test_what_is_missing_or_unknown_is_refused(words: list[str], capsys):
    with pytest.raises(SystemExit):
        build_parser().parse_args(words)
    assert "farspan" in capsys.readouterr().err
