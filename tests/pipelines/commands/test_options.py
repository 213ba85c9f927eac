"""Options of commands as they are typed, and what they refuse."""

import argparse
from typing import Any

import pytest

from corpora.errors import FarspanError
from corpora.packing.options import Packing
from corpora.settings import make
from pipelines.commands import build_parser
from pipelines.corpus.options import LinkedCorpus, LongCorpus, RandomCorpus, RelatedCorpus
from pipelines.evaluation.options import Evaluate, Evaluation, Submission
from pipelines.inspect.options import Check, Choice, Show, Stats, Verify
from pipelines.masks.options import Masking
from pipelines.options import Generating
from pipelines.view.options import View
from tests.pipelines.typed import typed


@pytest.mark.parametrize("command", ["documents", "pairs", "finalize"])
def test_the_error_budget_has_one_meaning_in_all_commands(command, capsys):
    with pytest.raises(SystemExit):
        build_parser().parse_args([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "each is counted separately (default: 0.01)" in text


NEEDED = "--documents d --output o --sequence-length 512"


def test_every_kind_of_corpus_has_the_same_flags_for_the_same_options():
    packing = Packing(sequence_length=512)
    assert typed(RandomCorpus, NEEDED) == RandomCorpus(documents="d", output="o", packing=packing)
    linked = typed(LinkedCorpus, f"{NEEDED} --neighbours n --leftovers leave-out")
    assert linked == LinkedCorpus(documents="d", neighbours="n", output="o", packing=packing, leftovers="leave-out")
    related = typed(RelatedCorpus, f"{NEEDED} --min-similarity 0.5 --split held-out")
    assert (related.min_similarity, related.split, related.packing) == (0.5, "held-out", packing)
    assert typed(LongCorpus, "mixture.toml --output o --seed 7") == LongCorpus(
        recipe="mixture.toml", output="o", seed=7
    )


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


def test_options_of_an_objective_are_typed_as_values():
    line = "span --corpus c --output o --preset t5 --set density=0.3 --set separator=null --draws 4 --seed 2"
    assert typed(Masking, line) == Masking(
        objective="span", corpus="c", output="o", preset="t5", options={"density": 0.3, "separator": None}, draws=4,
        seed=2,
    )  # fmt: skip


def test_what_is_not_typed_is_the_default():
    assert typed(Masking, "span --corpus c --output o") == Masking(objective="span", corpus="c", output="o")


GENERATING: dict[str, Any] = {"model": "run", "pairs": "p", "output": "o"}


def test_options_of_task_and_generation_are_typed_as_values():
    line = "run --pairs p --output o --set query=none --set source_length=64 --generation beams=4"
    found = typed(Generating, line)
    assert found == Generating(**GENERATING, options={"query": "none", "source_length": 64}, generation={"beams": 4})
    assert typed(Generating, "run --pairs p --output o") == Generating(**GENERATING)


def test_metrics_and_attributes_are_repeated():
    line = "a b.json --metrics f1 --metrics rouge:t5 --by hard --bins 3 --json table.json"
    assert typed(Evaluate, line) == Evaluate(
        predictions=("a", "b.json"),
        evaluation=Evaluation(metrics=("f1", "rouge:t5"), by=("hard",), bins=3),
        json="table.json",
    )


def test_a_submission_is_of_several_predictions():
    assert typed(Submission, "qasper=a b --output s.csv --partial") == Submission(
        predictions=("qasper=a", "b"), output="s.csv", partial=True
    )


def test_an_objective_or_a_task_is_chosen_for_a_row():
    line = "corpus --row 3 --objective span --preset t5 --set density=0.2 --draw 1 --width 80"
    assert typed(Show, line) == Show(
        artefact="corpus",
        row=3,
        width=80,
        choice=Choice(objective="span", preset="t5", options={"density": 0.2}, draw=1),
    )
    assert typed(Show, "pairs --task led").choice == Choice(task="led")


@pytest.mark.parametrize("kind", [Stats, Verify])
def test_several_folders_are_looked_at(kind):
    assert typed(kind, "a b c").artefact == ("a", "b", "c")


def test_rows_of_an_objectives_test_are_counted():
    assert typed(Check, "span --corpus c --rows 5") == Check(objective="span", corpus="c", rows=5)


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


@pytest.mark.parametrize(
    ("given", "message"),
    [({"rows": "1,x"}, "--rows 1,x: give row numbers"), ({"rows": "-1"}, "--rows -1: give row numbers")],
)
def test_other_values_are_refused(given, message):
    with pytest.raises(FarspanError, match=message):
        View(artefact=("a",), **given)


def test_plot_takes_several_runs():
    typed = build_parser().parse_args(["plot", "a", "b", "--over", "tokens", "--smooth", "5"])
    (options,) = typed.chosen.decode(vars(typed))
    assert (options.run, options.figure, options.over, options.smooth) == (("a", "b"), "curves.svg", "tokens", 5)


@pytest.mark.parametrize("words", [["plot"], ["runs"], ["plot", "a", "--over", "time"]])
def test_what_is_missing_or_unknown_is_refused(words: list[str], capsys):
    with pytest.raises(SystemExit):
        build_parser().parse_args(words)
    assert "farspan" in capsys.readouterr().err
